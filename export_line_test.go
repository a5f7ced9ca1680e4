package ratelimit

// InLine returns how many calls of Wait stand in line, for whatever rules and keys.
func (l *RateLimiter) InLine() (n int) {
	l.waiters.mu.Lock()
	defer l.waiters.mu.Unlock()
	for _, line := range l.waiters.lines {
		for w := line.first; w != nil; w = w.after {
			n++
		}
	}
	return n
}
