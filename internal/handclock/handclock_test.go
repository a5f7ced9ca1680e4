package handclock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBlockUntilRung has an alarm that has rung, while its caller still counts as one that waits. BlockUntil does not count on
// this caller: it waits until the caller has stopped the alarm.
func TestBlockUntilRung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		c.Waits(2, nil)
		_, stop := c.Alarm(c.Now().Add(time.Second))
		c.BlockUntil(2)
		c.Advance(time.Second)
		blocked := true
		go func() {
			c.BlockUntil(2)
			blocked = false
		}()
		synctest.Wait()
		require.True(t, blocked, "the caller is due")
		c.Waits(-1, nil)
		stop()
		stop()
		synctest.Wait()
		require.True(t, blocked, "one waits, not two")
		c.Waits(1, nil)
		synctest.Wait()
		require.False(t, blocked, "a second call of stop changes nothing")
	})
}
