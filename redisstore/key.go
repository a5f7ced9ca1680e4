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
// An ask with a Client has a key of the first form if its Key equals its Client, and
// otherwise of the second; thus all states of one client are in one slot of a cluster. An
// ask without a Client has a key of the third form. The 1 is the version of the stored
// format, which the heads of the scripts describe. The kind is the letter of the algorithm, which is
// a capital one for a state that warms up.
//
// Letters, digits and the marks in plainBytes stand for themselves; any other byte becomes
// a % and two hexadecimal digits. A text that would become longer than 64 bytes is replaced
// by a # and its hash. Different names therefore have different keys, and the only braces
// are those of the hash tag, which is never empty.
type key struct {
	text string
	tag  string // the text between the braces: the hash tag
}

// version is the version of the stored format.
const version = "1"

// maxPlainText is the length of the longest text that is not replaced by its hash.
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

// plain says which bytes stand for themselves.
var plain = func() (set [256]bool) {
	for _, c := range []byte(plainBytes) {
		set[c] = true
	}
	return set
}()

// writeText writes s in the form that [key] describes.
func writeText(b *strings.Builder, s string) {
	size := len(s)
	for i := 0; i < len(s) && size <= maxPlainText; i++ {
		if !plain[s[i]] {
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
		if c := s[i]; plain[c] {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
}

// slot returns the slot of a cluster that a hash tag belongs to.
func slot(tag string) int {
	var crc uint16 // the CRC16 of the variant XMODEM
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
