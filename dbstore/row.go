package dbstore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/ratelimit-go/ratelimit"
)

// Each row of the database has a key and a value.
//
// If the row has the state of a limiter's key, the row's key consists of a letter for the algorithm, the length of the rule's name,
// the rule's name, and the limiter's key. If all this is longer than maxKey bytes, the row's key is "#" and the SHA-256 of it. If the
// row is the record of a request with an ID, the row's key is "o" and a SHA-256. So two different states never share a row.
//
// The value consists of the version (one byte), the content, and a checksum: the CRC-32C of the key, the version and the content. The
// checksum includes the key, so that a value that somebody has copied to another key is noticed.

// maxKey is the largest length in bytes of a row's key that has the names of the rule and the limiter's key. A longer key is replaced
// by a SHA-256.
const maxKey = 200

// version is the first byte of each value.
const version = 1

// letters has, for each algorithm, the first byte of the keys of its rows. If the rule has a Warmup, the letter is a capital.
var letters = map[ratelimit.Algorithm]byte{
	ratelimit.AlgorithmTokenBucket: 't', ratelimit.AlgorithmLeakyBucket: 'l', ratelimit.AlgorithmFixedWindow: 'f',
	ratelimit.AlgorithmSlidingWindowCounter: 'c', ratelimit.AlgorithmSlidingWindowLog: 'g', ratelimit.AlgorithmInFlight: 'h',
}

// keyOf returns the key of the row that has the state of the ask.
func keyOf(a *ratelimit.Ask) string {
	letter := letters[a.Algorithm]
	if a.Warmup != (ratelimit.Warmup{}) {
		letter -= 'a' - 'A'
	}
	key := binary.AppendUvarint([]byte{letter}, uint64(len(a.Rule)))
	key = append(append(key, a.Rule...), a.Key...)
	if len(key) > maxKey {
		sum := sha256.Sum256(key)
		return "#" + string(sum[:])
	}
	return string(key)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(key string, value []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(key), castagnoli), castagnoli, value)
}

// seal returns the value that a row with this key and this content has, or nil if the content is nil.
func seal(key string, content []byte) []byte {
	if content == nil {
		return nil
	}
	value := append(make([]byte, 0, len(content)+5), version)
	value = append(value, content...)
	return binary.LittleEndian.AppendUint32(value, sumOf(key, value))
}

// unseal returns the content of a row with this key and this value. It returns an error if no Store can have written
// this value under this key.
func unseal(key string, value []byte) ([]byte, error) {
	body := value[:max(len(value)-4, 0)]
	switch {
	case len(body) == 0:
		return nil, fmt.Errorf("its value has only %d bytes", len(value))
	case body[0] != version:
		return nil, fmt.Errorf("its value has version %d, which this version of the library does not know", body[0])
	case binary.LittleEndian.Uint32(value[len(body):]) != sumOf(key, body):
		return nil, fmt.Errorf("its checksum is wrong")
	}
	return body[1:], nil
}
