package redisstore

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// A key is the name of one state.
//
//	prefix:{c<client>}:1<kind>:<rule>
//	prefix:{c<client>}:1<kind>:<rule>:<key>
//	prefix:{k<rule>:<key>}:1<kind>
//
// The first two are those of an ask with a Client, which may be its Key as well:
// what is about one client is in one slot of a cluster. 1 is the version of what is stored there, which is described
// at the head of the scripts, and kind the letter of the algorithm.
//
// Letters, digits and a few marks stand for themselves, other bytes are a % and two
// hexadecimal digits; text that would be longer than 64 bytes is a # and a hash of
// it. So names that differ have keys that do, and the only braces are those of the
// hash tag, which is never empty.
type key struct {
	text string
	tag  string // what is between the braces
}

// version is that of the stored formats.
const version = "1"

// maxPlainText is the maxPlainText text that is written out.
const maxPlainText = 64

func (s *settings) keyOf(a *ratelimit.Ask) key {
	var b strings.Builder
	b.Grow(len(s.prefix) + len(a.Rule) + len(a.Key) + len(a.Client) + 12)
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
	b.WriteByte(algorithms[a.Algorithm])
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

// writeText writes s, or the hash of it if it is long.
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
	const digits = "0123456789abcdef"
	for i := range len(s) {
		if c := s[i]; plain[c] {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
}

// slot returns the slot of a cluster that a hash tag is in.
func slot(tag string) int {
	var crc uint16 // CRC16, XMODEM
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
