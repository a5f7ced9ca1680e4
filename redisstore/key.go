package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A key is the name under which the server holds one state.
//
//	prefix:{c<client>}:1<kind>:<rule>
//	prefix:{c<client>}:1<kind>:<rule>:<key>
//	prefix:{k<rule>:<key>}:1<kind>
//
// The values of <client>, <rule> and <key> are the fields Client, Rule and Key of a [ratelimit.Ask], which is
// a request for units of one key. The key has the third form if Client is empty, the first form if Key equals
// Client, and otherwise the second form. A cluster stores all keys with the same text in braces in one slot,
// so all states of one client are together. The digit 1 is the version of the stored format, which the
// comments at the head of the scripts describe. The kind is the letter of the algorithm, in upper case if the
// rule has a Warmup.
//
// In each text, such as a rule or a client, the bytes in plainBytes are written as they are. Any other byte
// becomes a % and two hexadecimal digits. A text that would become longer than 64 bytes is replaced by a #
// and its hash. Different states therefore have different keys. Braces occur only around the hash tag, which
// is never empty.
type key struct {
	text string
	tag  string // the hash tag: the text between the braces, which decides the slot
}

// version is the version of the format of stored states. Each key contains it.
const version = "1"

// maxPlainText is how many bytes a text in a key may have. A longer text is replaced by its hash.
const maxPlainText = 64

func (s *settings) keyOf(a *ratelimit.Ask) key {
	var b strings.Builder
	b.Grow(len(s.prefix) + min(len(a.Rule), maxPlainText) + min(len(a.Key), maxPlainText) + min(len(a.Client), maxPlainText) + 12)
	b.WriteString(s.prefix)
	b.WriteString(":{")
	start := b.Len()
	if a.Client != "" {
		b.WriteByte('c')
		writeText(&b, a.Client)
	} else {
		b.WriteByte('k')
		writeText(&b, a.Rule)
		b.WriteByte(':')
		writeText(&b, a.Key)
	}
	end := b.Len()
	b.WriteString("}:" + version)
	b.WriteByte(letterOf(a))
	if a.Client != "" {
		b.WriteByte(':')
		writeText(&b, a.Rule)
		if a.Key != a.Client {
			b.WriteByte(':')
			writeText(&b, a.Key)
		}
	}
	text := b.String()
	return key{text, text[start:end]}
}

const plainBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.@/*+=,"

// unescaped has the value true for each byte that writeText writes as it is.
var unescaped = func() (set [256]bool) {
	for _, c := range []byte(plainBytes) {
		set[c] = true
	}
	return set
}()

// writeText appends the text s to the builder b, in the form that the comment of the type key describes.
func writeText(b *strings.Builder, s string) {
	size := len(s)
	for i := 0; i < len(s) && size <= maxPlainText; i++ {
		if !unescaped[s[i]] {
			size += 2
		}
	}
	if size > maxPlainText {
		sum := sha256.Sum256([]byte(s))
		b.WriteByte('#')
		b.WriteString(base64.RawURLEncoding.EncodeToString(sum[:]))
		return
	}
	if size == len(s) {
		b.WriteString(s)
		return
	}
	const digits = "0123456789abcdef"
	for i := range len(s) {
		if c := s[i]; unescaped[c] {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
}

// slot returns the number of the cluster slot that holds the keys with this hash tag.
func slot(tag string) int {
	var crc uint16 // the checksum that Redis Cluster prescribes: CRC16 in the variant XMODEM
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
