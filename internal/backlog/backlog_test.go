package backlog

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/internal/keytable"
)

// at returns a clock that stands.
func at(now keytable.Instant) func() keytable.Instant {
	return func() keytable.Instant { return now }
}

func TestBacklog(t *testing.T) {
	var b Backlog[int]
	var sent [][]int
	var failure error
	send := func(messages []int) error {
		sent = append(sent, messages)
		return failure
	}
	b.Send(at(0), 2, send)
	require.Empty(t, sent, "there is nothing to send")
	for i := range 5 {
		b.Add(i, keytable.Instant(10*i))
	}
	b.Send(at(10), 2, send)
	require.Equal(t, [][]int{{2, 3}}, sent, "0 and 1 are of no use at 10")
	failure = errors.New("down")
	b.Add(5, 50)
	b.Send(at(20), 9, send)
	require.Equal(t, []int{4, 5}, sent[1])
	b.Add(6, 60)
	failure = nil
	b.Send(at(20), 9, send)
	require.Equal(t, []int{4, 5, 6}, sent[2], "what was not sent stays, in its order")
	b.Send(at(20), 9, send)
	require.Len(t, sent, 3)
	b.Add(7, 60)
	b.Send(at(60), 9, send)
	require.Len(t, sent, 3, "what is of no use is dropped")
	require.Nil(t, b.list)

	for i := range maxMessages + 3 {
		b.Add(i, 100)
	}
	require.Len(t, b.list, maxMessages)
	failure = errors.New("down")
	b.Send(at(20), 10, func(messages []int) error {
		b.Add(1, 100)
		b.Add(2, 100)
		return send(messages)
	})
	require.Equal(t, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, sent[3], "the oldest are dropped")
	require.Len(t, b.list, maxMessages, "also if others came meanwhile")
	require.Equal(t, 2, b.list[maxMessages-1].message)
	require.EqualValues(t, maxMessages, b.size.Load())
	require.Equal(t, 3+2, b.list[0].message)
}
