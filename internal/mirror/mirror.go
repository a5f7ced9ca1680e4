// Package mirror copies values between structs whose fields have the same names, but different types. One struct is of the root
// package, which no internal package may import; the other struct is of an internal package that the root package calls.
package mirror

import "reflect"

// To returns a struct of the type T. Each field of the result gets the value of the field with the same name in the struct from.
// The types of two such fields may differ if the value in from can be converted to the type in T. Otherwise, both must be structs,
// or pointers to structs, or slices of structs, and their fields are copied in the same way. An empty slice of structs becomes nil.
// T and from may also be such pointers or slices themselves.
func To[T any](from any) (to T) {
	copyValue(reflect.ValueOf(&to).Elem(), reflect.ValueOf(from))
	return to
}

func copyValue(to, from reflect.Value) {
	switch kind := from.Kind(); {
	case from.CanConvert(to.Type()):
		to.Set(from.Convert(to.Type()))
	case kind == reflect.Struct:
		for i := range to.NumField() {
			copyValue(to.Field(i), from.FieldByName(to.Type().Field(i).Name))
		}
	case from.IsZero() || kind == reflect.Slice && from.Len() == 0:
		to.SetZero()
	case kind == reflect.Slice:
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyValue(to.Index(i), from.Index(i))
		}
	default:
		to.Set(reflect.New(to.Type().Elem()))
		copyValue(to.Elem(), from.Elem())
	}
}
