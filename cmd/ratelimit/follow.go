package main

import (
	"context"
	"io"
	"time"
)

// A liveReader reads from a pipe that may have nothing to read for long. When the context ends, Read returns io.EOF. While
// Read waits for data, it calls the function onTick at regular intervals.
type liveReader struct {
	ctx    context.Context
	chunks chan chunk
	rest   []byte
	err    error
	ticker *time.Ticker // nil if there is no function onTick
	onTick func()
}

// A chunk is the result of one call of Read.
type chunk struct {
	text []byte
	err  error
}

// newLiveReader returns a liveReader that reads from r. The parameter every is the time between two calls
// of onTick, which may be nil.
func newLiveReader(ctx context.Context, r io.Reader, every time.Duration, onTick func()) *liveReader {
	l := &liveReader{ctx: ctx, chunks: make(chan chunk), onTick: onTick}
	if onTick != nil {
		l.ticker = time.NewTicker(every)
	}
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, err := r.Read(buffer)
			select {
			case l.chunks <- chunk{append([]byte(nil), buffer[:n]...), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return l
}

// Read reads what the pipe has.
func (l *liveReader) Read(b []byte) (int, error) {
	var ticks <-chan time.Time
	if l.ticker != nil {
		ticks = l.ticker.C
	}
	for len(l.rest) == 0 && l.err == nil {
		select {
		case <-ticks:
			l.onTick()
		default:
		}
		select {
		case c := <-l.chunks:
			l.rest, l.err = c.text, c.err
		case <-ticks:
			l.onTick()
		case <-l.ctx.Done():
			l.err = io.EOF
		}
	}
	if len(l.rest) == 0 {
		if l.ticker != nil {
			l.ticker.Stop()
		}
		return 0, l.err
	}
	n := copy(b, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
