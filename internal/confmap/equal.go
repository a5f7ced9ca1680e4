package confmap

import (
	"encoding/json"
	"reflect"
)

// Equal reports whether two values mean the same in a config. Numbers are equal if they have the same
// value, whatever their types: the int 10, the float64 10 and the json.Number "10.0" are equal. Maps
// and lists are equal if their values are equal, even if their types differ, such as map[string]any
// and map[string]int. All other values must be deeply equal. A value in which maps and lists are nested
// deeper than MaxDepth, such as one that contains itself, is equal to no value.
func Equal(a, b any) bool { return equal(reflect.ValueOf(a), reflect.ValueOf(b), 0) }

// equal does the work of Equal for two values that may be nested in maps and lists. The parameter depth
// says in how many maps and lists they are nested.
func equal(a, b reflect.Value, depth int) bool {
	a, b = within(a), within(b)
	if !a.IsValid() || !b.IsValid() || depth > MaxDepth {
		return a.IsValid() == b.IsValid() && depth <= MaxDepth
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		x.single, y.single = false, false
		return ok && (x == y || x.digits == "" && y.digits == "") // -0 is 0
	}
	switch kind := a.Kind(); {
	case kind != b.Kind():
		return false
	case kind == reflect.Map:
		return equalMaps(a, b, depth)
	case kind == reflect.Slice && a.IsNil() == b.IsNil() && a.Len() == b.Len():
		for i := range a.Len() {
			if !equal(a.Index(i), b.Index(i), depth+1) {
				return false
			}
		}
		return true
	case kind == reflect.Slice:
		return false
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// equalMaps reports whether two maps are equal. The types of their keys may differ, such as string and
// any.
func equalMaps(a, b reflect.Value, depth int) bool {
	if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
		return false
	}
	values := make(map[any]reflect.Value, a.Len())
	for it := a.MapRange(); it.Next(); {
		values[within(it.Key()).Interface()] = it.Value()
	}
	for it := b.MapRange(); it.Next(); {
		value, ok := values[within(it.Key()).Interface()]
		if !ok || !equal(value, it.Value(), depth+1) {
			return false
		}
	}
	return true
}

// within returns the value that v holds if v is an interface, and otherwise v itself.
func within(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Interface {
		return v.Elem()
	}
	return v
}

// number is NumberOf for a reflect.Value. It does not copy a value that is not a number.
func number(v reflect.Value) (Decimal, bool) {
	if v.CanInt() || v.CanUint() || v.CanFloat() || v.Type() == reflect.TypeFor[json.Number]() {
		return NumberOf(v.Interface())
	}
	return Decimal{}, false
}

// Same reports whether two values are equal by ==. If their type does not allow ==, Same reports whether
// they hold the same pointers. Same follows no pointer, so other goroutines may use the values behind the
// pointers at the same time.
func Same(a, b any) bool { return same(reflect.ValueOf(a), reflect.ValueOf(b)) }

func same(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() || a.Type() != b.Type() {
		return a.IsValid() == b.IsValid() && !a.IsValid()
	}
	if a.Comparable() && b.Comparable() {
		return a.Equal(b)
	}
	switch a.Kind() {
	case reflect.Map, reflect.Func:
		return a.UnsafePointer() == b.UnsafePointer()
	case reflect.Slice:
		return a.UnsafePointer() == b.UnsafePointer() && a.Len() == b.Len()
	case reflect.Interface:
		return same(a.Elem(), b.Elem())
	case reflect.Array:
		for i := range a.Len() {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Struct:
		for i := range a.NumField() {
			if !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	}
	return false
}

// IsNil reports whether v is a nil interface or holds a nil value, such as a nil pointer or a
// nil func.
func IsNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
