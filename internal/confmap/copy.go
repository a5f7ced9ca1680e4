package confmap

import (
	"fmt"
	"reflect"
)

// MaxDepth is how deep maps and lists may be nested in a map that is copied or compared.
const MaxDepth = 100

// The bounds on the cost of all copies of one Reader together. A value has a cost of 1. A map or
// list costs more, because it takes more memory.
const (
	maxValues  = 1 << 19 // largest cost of one copy of every map, all together
	maxCopies  = 2       // how often each map is copied: the caller stores one copy and passes the other on
	costOfList = 8       // cost of a map or list, in addition to the cost of its values
)

// tooLarge is the reason in the error for a map that is too large to be copied.
var tooLarge = fmt.Sprintf("must be smaller: at most %d maps and lists within each other and, over all configs, "+
	"%d values, each map or list counting as %d",
	MaxDepth, maxValues, costOfList)

// Copy returns a copy of the map of the node n. Maps and lists in the map are copied too; the copy
// shares all other values with the original. If a map has a key that is not a string, or is too large
// or nested too deep, Copy reports the problem, and ok is false. A map that contains itself is nested
// too deep.
func (r *Reader) Copy(n *Node) (fields map[string]any, ok bool) {
	if !r.StringKeys(n) {
		return nil, false
	}
	if !r.pay(n.Len()) {
		r.Reject(n.Path, "a map", tooLarge)
		return nil, false
	}
	fields = make(map[string]any, n.Len())
	for key, value := range n.all() {
		name := key.(string)
		v, ok := r.copyValue(reflect.ValueOf(value), 1)
		if !ok {
			r.Reject(n.Path, "a map", tooLarge)
			return nil, false
		}
		fields[name] = nil
		if v.IsValid() {
			fields[name] = v.Interface()
		}
	}
	return fields, true
}

// pay adds the cost of a map or list that has this number of values to the cost of all copies. It
// reports whether the cost of all copies is still within its bound.
func (r *Reader) pay(values int) bool {
	r.copied += costOfList + values
	return r.copied <= maxCopies*maxValues
}

// copyValue returns a copy of v. If v is too large or nested too deep, ok is false. The parameter depth is
// the number of maps and lists that contain v. If v is a nil interface, the copy is the zero reflect.Value.
func (r *Reader) copyValue(v reflect.Value, depth int) (c reflect.Value, ok bool) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Map && v.Kind() != reflect.Slice || v.IsNil() {
		return v, true
	}
	if !r.pay(v.Len()) || depth > MaxDepth {
		return v, false
	}
	if v.Kind() == reflect.Slice {
		return r.copyList(v, depth)
	}
	return r.copyMap(v, depth)
}

// copyMap is copyValue for a value that is a map.
func (r *Reader) copyMap(v reflect.Value, depth int) (c reflect.Value, ok bool) {
	c = reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		value, ok := r.copyValue(it.Value(), depth+1)
		if !ok {
			return v, false
		}
		if !value.IsValid() {
			value = it.Value() // a nil value; with a zero reflect.Value, SetMapIndex would delete the key
		}
		c.SetMapIndex(it.Key(), value)
	}
	return c, true
}

// copyList is copyValue for a value that is a list.
func (r *Reader) copyList(v reflect.Value, depth int) (c reflect.Value, ok bool) {
	c = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	switch v.Type().Elem().Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
	default: // the elements of the list are neither maps nor lists
		reflect.Copy(c, v)
		return c, true
	}
	for i := range v.Len() {
		value, ok := r.copyValue(v.Index(i), depth+1)
		if !ok {
			return v, false
		}
		if value.IsValid() {
			c.Index(i).Set(value)
		}
	}
	return c, true
}
