// Package mirror copies values between structs whose fields have the same names, but different types. One struct is of the root
// package, which no internal package may import; the other struct is of an internal package that the root package calls.
package mirror

import "reflect"

// Copy sets the fields of one struct from the fields with the same names of another struct. Its two parameters are pointers:
// first to the struct that changes, then to the struct that is read. The types of two fields with one name may differ, but one
// must be convertible to the other, or both are structs, pointers to structs or lists of structs. An empty list becomes nil.
func Copy(to, from any) { copyValue(reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()) }

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
