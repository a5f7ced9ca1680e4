package verify

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/iolimit"
)

// TestPropertiesOfLimitedBytes copies bytes through a Reader and a Writer whose limit changes at random, and that
// deny at random. It proves that the bytes that arrive are those that were sent, that what is written was
// granted before, that what is read is asked for once, and that a piece never has more than 64 KiB.
func TestPropertiesOfLimitedBytes(t *testing.T) {
	denied := errors.New("denied")
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(7, seed))
		text := make([]byte, random.IntN(400_000))
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		limit, granted, refusals, highest := 1<<random.IntN(20), 0, 0, 1<<15
		wait := func(_ context.Context, n int) error {
			require.Positive(t, n)
			require.LessOrEqual(t, n, 64<<10)
			switch random.IntN(200) {
			case 0:
				limit = 1 + random.IntN(1<<random.IntN(20))
			case 1:
				return denied
			}
			if n > limit {
				refusals++
				return ratelimit.ErrExceedsLimit
			}
			granted += n
			highest = max(highest, limit)
			return nil
		}
		var written bytes.Buffer
		w := iolimit.NewWriter(t.Context(), &written, wait)
		for at := 0; at < len(text); {
			n, err := w.Write(text[at:min(at+1+random.IntN(200_000), len(text))])
			at += n
			require.Equal(t, at, granted, "seed %d: what is written was granted", seed)
			if err != nil {
				require.Equal(t, denied, err, "seed %d", seed)
			}
		}
		require.True(t, bytes.Equal(text, written.Bytes()), "seed %d", seed)

		granted = 0
		var read []byte
		r := iolimit.NewReader(t.Context(), bytes.NewReader(text), wait)
		for err := error(nil); !errors.Is(err, io.EOF); {
			p, before := make([]byte, 1+random.IntN(100_000)), granted
			var n int
			n, err = r.Read(p)
			read = append(read, p[:n]...)
			if err == nil {
				require.Equal(t, n, granted-before, "seed %d: what is read is charged", seed)
			} else {
				require.LessOrEqual(t, granted-before, n, "seed %d", seed)
			}
		}
		require.True(t, bytes.Equal(text, read), "seed %d", seed)
		require.LessOrEqual(t, refusals, 20*(len(text)/64+200), "seed %d", seed)
	}
}

// TestLimitedBytesFollowTheLimit lowers a limit and raises it again. It proves that few calls are
// refused at the lower limit, and that the pieces are large again after the raise.
func TestLimitedBytesFollowTheLimit(t *testing.T) {
	limit, calls, refusals := 1000, 0, 0
	w := iolimit.NewWriter(t.Context(), io.Discard, func(_ context.Context, n int) error {
		if calls++; n > limit {
			refusals++
			return ratelimit.ErrExceedsLimit
		}
		return nil
	})
	write := func(n int) {
		calls, refusals = 0, 0
		_, err := w.Write(make([]byte, n))
		require.NoError(t, err)
	}
	write(1 << 20)
	require.Equal(t, 2048+refusals, calls, "pieces of 512 bytes")
	require.Equal(t, 7+31, refusals, "7 halvings, then one try after each 64 pieces")
	limit = 1 << 20
	write(64 << 17)
	write(1 << 20)
	require.Equal(t, 16, calls)
	require.Zero(t, refusals)
}

// TestLimitedBytesOfEndedWork proves that nothing is read or written after the context has ended.
func TestLimitedBytesOfEndedWork(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wait := func(context.Context, int) error { return nil }
	source, written := bytes.NewReader(make([]byte, 10)), new(bytes.Buffer)
	_, err := iolimit.NewReader(ctx, source, wait).Read(make([]byte, 5))
	require.Equal(t, context.Canceled, err)
	require.Equal(t, 10, source.Len())
	_, err = iolimit.NewWriter(ctx, written, wait).Write(make([]byte, 5))
	require.Equal(t, context.Canceled, err)
	require.Zero(t, written.Len())
}

// A brokenReader returns three bytes together with an error, and counts its calls.
type brokenReader struct{ calls int }

func (r *brokenReader) Read(p []byte) (int, error) {
	r.calls++
	return copy(p, "abc"), io.ErrClosedPipe
}

// TestErrorsOfReadersStay proves that a reader that has failed is not read again, and that its error is
// returned even if the bytes that came with it were denied.
func TestErrorsOfReadersStay(t *testing.T) {
	denied, source := errors.New("denied"), new(brokenReader)
	r := iolimit.NewReader(t.Context(), source, func(context.Context, int) error { return denied })
	n, err := r.Read(make([]byte, 5))
	require.Equal(t, 3, n)
	require.Equal(t, denied, err)
	for range 2 {
		n, err = r.Read(make([]byte, 5))
		require.Zero(t, n)
		require.Equal(t, io.ErrClosedPipe, err)
	}
	require.Equal(t, 1, source.calls)
}
