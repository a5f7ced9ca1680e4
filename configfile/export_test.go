package configfile

import "time"

// Scan reads a document as Parse does, but for the byte order mark and twice a name.
func Scan(text []byte) (v any, ok bool) {
	s := scanner{data: text}
	return s.document("")
}

// Pause is pause.
func (w *Watcher) Pause() time.Duration { return w.pause() }
