// Package packed writes numbers as bytes, and reads them back. Its functions, such as [Number], both write and read.
// So the same calls write a value and read it back, and the two directions cannot differ.
package packed

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrBroken is the error for bytes that no [Form] has written.
var ErrBroken = errors.New("the stored value is broken")

// A Form is a sequence of bytes that is either written or read. Functions such as [Number] get a Form and a pointer. If
// the Form is written, they append the value at the pointer to the bytes. If the Form is read, they take a value from
// the bytes and store it at the pointer. Once a read has found bytes that no Form can have written, all further reads
// return the smallest permitted values.
type Form struct {
	bytes   []byte
	reading bool
	broken  bool
	last    uint64 // the instant that was written or read last; the next instant is stored as the difference to this one
	back    uint64 // how many nanoseconds are subtracted from each instant that is read
}

// start is the instant from which the first instant of a Form is counted: the Start of the package keytable.
const start = 1 << 63

// Write returns a Form that appends to the given bytes.
func Write(to []byte) *Form { return &Form{bytes: to, last: start} }

// Read returns a Form that reads the given bytes.
func Read(from []byte) *Form { return &Form{bytes: from, reading: true, last: start} }

// Section begins a section: a part of the bytes that does not depend on what was written before it. The first instant in the
// section is stored as the difference to a fixed instant, and not to the instant before.
func (f *Form) Section() { f.last = start }

// Back makes each instant that is read from now on earlier by the given number of nanoseconds. The zero instant, which stands
// for no instant, stays zero.
func (f *Form) Back(by uint64) { f.back = by }

// Reading reports whether f is read, not written.
func (f *Form) Reading() bool { return f.reading }

// Bytes returns what was written so far, or what is still to be read.
func (f *Form) Bytes() []byte { return f.bytes }

// Fail notes that the bytes cannot be right.
func (f *Form) Fail() { f.broken, f.bytes = true, nil }

// OK reports whether everything that was read so far can be right.
func (f *Form) OK() bool { return !f.broken }

// Err returns [ErrBroken] if the bytes cannot be right, or if some of them were not read.
func (f *Form) Err() error {
	if f.broken || f.reading && len(f.bytes) > 0 {
		return ErrBroken
	}
	return nil
}

// uint writes the number v and returns v, or it reads a number and returns that. If the number that was read is above the limit
// (the parameter named most), the bytes cannot be right. uint then calls Fail and returns 0.
func (f *Form) uint(v, most uint64) uint64 {
	if !f.reading {
		f.bytes = binary.AppendUvarint(f.bytes, v)
		return v
	}
	v, n := binary.Uvarint(f.bytes)
	if n <= 0 || v > most {
		f.Fail()
		return 0
	}
	f.bytes = f.bytes[n:]
	return v
}

// An Integer is a type of numbers that the function [Number] can write and read.
type Integer interface {
	~int | ~int64 | ~uint8 | ~uint32 | ~uint64
}

// Number writes the number that p points to, or reads a number and stores it there. A number that is read must be from the bound
// in the parameter least to the bound in the parameter most. Both bounds must be from 0 to math.MaxInt64.
func Number[T Integer](f *Form, p *T, least, most T) {
	v := f.uint(uint64(*p), uint64(most))
	if !f.reading {
		return
	}
	if v < uint64(least) {
		f.Fail()
	}
	*p = max(T(v), least)
}

// Instant writes or reads an instant, which may be any number of 64 bits. It is stored as the difference to the instant before
// it in the Form. This takes few bytes, because the two are usually close together.
func Instant[T ~uint64](f *Form, p *T) {
	d := int64(uint64(*p) - f.last)
	if f.reading {
		*p = 0
	}
	v := f.uint(uint64(d)<<1^uint64(d>>63), math.MaxUint64)
	if !f.reading {
		f.last = uint64(*p)
		return
	}
	if f.broken {
		return
	}
	f.last += v>>1 ^ -(v & 1)
	if f.last != 0 {
		*p = max(T(f.last-min(f.back, f.last)), 1)
	}
}

// Counts writes or reads an instant and then some numbers, whose sum is at most the largest int64.
func Counts[T ~uint64](f *Form, last *T, counts ...*int64) {
	Instant(f, last)
	most := int64(math.MaxInt64)
	for _, p := range counts {
		Number(f, p, 0, most)
		most -= *p
	}
}

// Mark writes or reads a number that may have any value, such as a random one. It always takes 8 bytes.
func Mark(f *Form, p *uint64) {
	switch {
	case !f.reading:
		f.bytes = binary.LittleEndian.AppendUint64(f.bytes, *p)
	case len(f.bytes) < 8:
		f.Fail()
		*p = 0
	default:
		*p, f.bytes = binary.LittleEndian.Uint64(f.bytes), f.bytes[8:]
	}
}

// Flags writes or reads up to 8 bools.
func Flags(f *Form, all ...*bool) {
	var bits uint8
	for i, p := range all {
		if *p {
			bits |= 1 << i
		}
	}
	Number(f, &bits, 0, 1<<len(all)-1)
	for i, p := range all {
		*p = bits&(1<<i) != 0
	}
}

// Text writes or reads a text. The parameter most is the largest number of bytes of the text.
func Text(f *Form, p *string, most int) {
	n := len(*p)
	Number(f, &n, 0, most)
	switch {
	case !f.reading:
		f.bytes = append(f.bytes, *p...)
	case n > len(f.bytes):
		f.Fail()
		*p = ""
	default:
		*p, f.bytes = string(f.bytes[:n]), f.bytes[n:]
	}
}
