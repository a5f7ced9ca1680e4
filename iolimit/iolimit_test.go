package iolimit_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/iolimit"
)

// A waitFunc is the function that waits for n bytes.
type waitFunc = func(ctx context.Context, n int) error

// by returns a function that waits for bytes of one key of a limiter.
func by(l ratelimit.Limiter, key string) waitFunc {
	return func(ctx context.Context, n int) error {
		_, err := ratelimit.Wait(ctx, l, key, n)
		return err
	}
}

// bucket returns a token bucket that grants 1,000 bytes a second, and as many at once.
func bucket(t *testing.T) ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.NewTokenBucket(ratelimit.PerSecond(1000))
	require.NoError(t, err)
	return l
}

// granted returns a function that grants up to limit bytes at once, and writes down for how many it was asked.
func granted(limit int, asked *[]int) waitFunc {
	return func(_ context.Context, n int) error {
		*asked = append(*asked, n)
		if n > limit {
			return ratelimit.ErrExceedsLimit
		}
		return nil
	}
}

// content returns n bytes that differ from place to place.
func content(n int) []byte {
	random := rand.New(rand.NewPCG(1, uint64(n)))
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(random.Uint32())
	}
	return p
}

func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := content(10_500)
		start := time.Now()
		read, err := io.ReadAll(iolimit.NewReader(t.Context(), bytes.NewReader(text), by(bucket(t), "k")))
		require.NoError(t, err)
		require.Equal(t, text, read)
		require.Equal(t, 9500*time.Millisecond, time.Since(start), "1,000 bytes at once, the others at 1,000 a second")

		start = time.Now()
		var written bytes.Buffer
		n, err := iolimit.NewWriter(t.Context(), &written, by(bucket(t), "k")).Write(text)
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		require.Equal(t, text, written.Bytes())
		require.Equal(t, 9500*time.Millisecond, time.Since(start))
	})
}

// TestSharedPace has a reader and a writer use one key, and another writer another key.
func TestSharedPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := bucket(t)
		ended := make(chan time.Duration, 3)
		start := time.Now()
		for _, key := range []string{"shared", "shared", "own"} {
			go func() {
				_, err := io.Copy(iolimit.NewWriter(t.Context(), io.Discard, by(l, key)), bytes.NewReader(content(5000)))
				assert.NoError(t, err)
				ended <- time.Since(start)
			}()
		}
		require.Equal(t, 4*time.Second, <-ended, "the writer of the key own")
		<-ended
		require.Equal(t, 9*time.Second, <-ended, "10,000 bytes of the key shared")
	})
}

func TestPieces(t *testing.T) {
	for _, tt := range []struct {
		bytes, limit int
		want         []int
	}{
		{1, 1 << 20, []int{1}},
		{65_536, 1 << 20, []int{65_536}},
		{150_000, 1 << 20, []int{65_536, 65_536, 18_928}},
		{65_536, 65_535, []int{65_536, 32_768, 32_768}},
		{100, 30, []int{100, 50, 25, 25, 25, 25}},
		{7, 1, []int{7, 3, 1, 1, 1, 1, 1, 1, 1}},
	} {
		var asked []int
		n, err := iolimit.NewWriter(t.Context(), io.Discard, granted(tt.limit, &asked)).Write(make([]byte, tt.bytes))
		require.NoError(t, err)
		require.Equal(t, tt.bytes, n)
		require.Equal(t, tt.want, asked, "%d bytes, %d at once: writer", tt.bytes, tt.limit)

		asked = nil
		read, err := iolimit.NewReader(t.Context(), bytes.NewReader(make([]byte, tt.bytes)), granted(tt.limit, &asked)).
			Read(make([]byte, tt.bytes))
		require.NoError(t, err)
		require.Equal(t, min(tt.bytes, 65_536), read)
		if tt.bytes <= 65_536 {
			require.Equal(t, tt.want, asked, "%d bytes, %d at once: reader", tt.bytes, tt.limit)
		}
	}
}

// TestPiecesGrow lowers a limit and raises it again. It proves that the pieces follow it both ways.
func TestPiecesGrow(t *testing.T) {
	limit := 1000
	var asked []int
	w := iolimit.NewWriter(t.Context(), io.Discard, func(ctx context.Context, n int) error {
		return granted(limit, &asked)(ctx, n)
	})
	write := func(n int) []int {
		asked = nil
		_, err := w.Write(make([]byte, n))
		require.NoError(t, err)
		return asked
	}
	require.Equal(t, []int{65_536, 32_768, 16_384, 8192, 4096, 2048, 1024, 512}, write(65_536)[:8])
	require.Equal(t, []int{1024, 512}, write(65_536)[:2], "after 128 pieces of 512")
	limit = 1 << 20
	pieces := write(64*(1024+2048+4096+8192+16_384+32_768) + 65_536)
	require.Len(t, pieces, 6*64+1)
	require.Equal(t, []int{1024, 2048, 4096, 8192, 16_384, 32_768, 65_536}, slices.Compact(pieces))
	require.Equal(t, []int{65_536, 65_536}, write(131_072))
}

func TestNeverGranted(t *testing.T) {
	var asked []int
	n, err := iolimit.NewWriter(t.Context(), io.Discard, granted(0, &asked)).Write(make([]byte, 9))
	require.Equal(t, ratelimit.ErrExceedsLimit, err)
	require.Zero(t, n)
	require.Equal(t, []int{9, 4, 2, 1}, asked)
}

// TestErrorOfWait proves what is returned when the limiter grants only some of the bytes.
func TestErrorOfWait(t *testing.T) {
	denied := errors.New("denied")
	times := 0
	wait := func(context.Context, int) error {
		if times++; times == 3 {
			return denied
		}
		return nil
	}
	var written bytes.Buffer
	text := content(200_000)
	n, err := iolimit.NewWriter(t.Context(), &written, wait).Write(text)
	require.Equal(t, denied, err)
	require.Equal(t, 131_072, n)
	require.Equal(t, text[:n], written.Bytes())

	times = 2
	r := iolimit.NewReader(t.Context(), iotest.DataErrReader(strings.NewReader("abc")), wait)
	p := make([]byte, 10)
	n, err = r.Read(p)
	require.Equal(t, denied, err)
	require.Equal(t, "abc", string(p[:n]), "they were taken from the reader")
	n, err = r.Read(p)
	require.Equal(t, io.EOF, err)
	require.Zero(t, n)
}

// TestErrorOfReader proves that bytes which come together with an error are charged.
func TestErrorOfReader(t *testing.T) {
	var asked []int
	r := iolimit.NewReader(t.Context(), iotest.DataErrReader(strings.NewReader("abcdefghij")), granted(100, &asked))
	read, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "abcdefghij", string(read))
	require.Equal(t, []int{10}, asked)

	asked = nil
	_, err = iolimit.NewReader(t.Context(), iotest.ErrReader(io.ErrClosedPipe), granted(100, &asked)).Read(make([]byte, 1))
	require.Equal(t, io.ErrClosedPipe, err)
	require.Empty(t, asked)
}

// A short is a writer that takes only some of the bytes.
type short struct {
	n   int
	err error
}

func (s short) Write(p []byte) (int, error) { return min(s.n, len(p)), s.err }

func TestErrorOfWriter(t *testing.T) {
	var asked []int
	n, err := iolimit.NewWriter(t.Context(), short{3, io.ErrClosedPipe}, granted(100, &asked)).Write(make([]byte, 10))
	require.Equal(t, io.ErrClosedPipe, err)
	require.Equal(t, 3, n)
	n, err = iolimit.NewWriter(t.Context(), short{3, nil}, granted(100, &asked)).Write(make([]byte, 10))
	require.Equal(t, io.ErrShortWrite, err)
	require.Equal(t, 3, n)
	require.Equal(t, []int{10, 10}, asked)
}

// TestContextEnds ends the context of a reader and of a writer that wait, and then uses them again.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := bucket(t)
		time.AfterFunc(2500*time.Millisecond, cancel)
		source := bytes.NewReader(content(5000))
		var written bytes.Buffer
		w := iolimit.NewWriter(ctx, &written, by(l, "k"))
		n, err := w.Write(content(5000))
		require.Equal(t, context.Canceled, err)
		require.Equal(t, written.Len(), n)
		require.LessOrEqual(t, n, 3500, "what was granted until then")
		n, err = w.Write(content(1))
		require.Equal(t, context.Canceled, err)
		require.Zero(t, n)
		n, err = iolimit.NewReader(ctx, source, by(l, "k")).Read(make([]byte, 10))
		require.Equal(t, context.Canceled, err)
		require.Zero(t, n)
		require.Equal(t, 5000, source.Len(), "nothing is taken from the reader")
	})
}

// TestDeadline proves that a Write fails at once if its bytes cannot be granted before the deadline.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := iolimit.NewWriter(ctx, io.Discard, by(bucket(t), "k")).Write(content(3500))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 2*time.Second, "the piece that comes too late is not waited for")
	})
}

// closed notes whether it was closed.
type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error {
	c.times++
	return io.ErrClosedPipe
}

func TestClose(t *testing.T) {
	c := &closed{Reader: strings.NewReader("")}
	require.Equal(t, io.ErrClosedPipe, iolimit.NewReader(t.Context(), c, granted(1, new([]int))).Close())
	require.Equal(t, 1, c.times)
	require.NoError(t, iolimit.NewReader(t.Context(), strings.NewReader(""), granted(1, new([]int))).Close())
}

func TestNothingToLimit(t *testing.T) {
	var asked []int
	wait := granted(1, &asked)
	n, err := iolimit.NewReader(t.Context(), strings.NewReader("a"), wait).Read(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = iolimit.NewWriter(t.Context(), io.Discard, wait).Write(nil)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Empty(t, asked)
	_, err = iolimit.NewWriter(nil, io.Discard, wait).Write([]byte("a")) //nolint:staticcheck // a nil context is context.Background()
	require.NoError(t, err)
}

func TestMissing(t *testing.T) {
	wait := granted(1, new([]int))
	for want, f := range map[string]func(){
		"iolimit: NewReader: the reader must not be nil":               func() { iolimit.NewReader(t.Context(), nil, wait) },
		"iolimit: NewReader: the function wait must not be nil":        func() { iolimit.NewReader(t.Context(), strings.NewReader(""), nil) },
		"iolimit: NewWriter: the writer must not be nil":               func() { iolimit.NewWriter(t.Context(), nil, wait) },
		"iolimit: NewWriter: the function wait must not be nil":        func() { iolimit.NewWriter(t.Context(), io.Discard, nil) },
		"iolimit: ResponseWriter: the response writer must not be nil": func() { iolimit.ResponseWriter(t.Context(), nil, wait) },
		"iolimit: ResponseWriter: the function wait must not be nil":   func() { iolimit.ResponseWriter(t.Context(), plain{}, nil) },
	} {
		require.PanicsWithValue(t, want, f)
	}
}
