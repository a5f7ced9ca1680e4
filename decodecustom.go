package ratelimit

import (
	"fmt"
	"reflect"
	"strings"
)

// What the copies of algoConfigs may cost: how deep maps and lists may lie in each
// other, and how many values the two copies of all of them may have, where a map or
// list counts for more than a number.
const (
	maxDepth   = 100
	maxCopied  = 1 << 20
	costOfList = 8
)

// custom makes the limiter of a rule whose algorithm is registered; n is the rule
// and config its algoConfig. It is nil if there is a problem.
func (d *decoder) custom(n, config *node, entry algorithmEntry) *customLimiter {
	kept := d.copyOf(config)
	if kept == nil {
		return nil
	}
	handed := d.copyOf(config)
	if handed == nil {
		return nil
	}
	l, broken, err := d.build(entry, handed)
	switch {
	case broken != "":
		d.report(&buildError{&ConfigError{n.field("algorithm"), quoted(string(entry.algorithm)), "its BuildFunc " + broken}, err})
		return nil
	case err != nil:
		d.refused(config, entry, err)
		return nil
	}
	return &customLimiter{kept, l}
}

// build calls a BuildFunc. It returns the BuildFunc's error, or what the BuildFunc
// did that none may do; err is then what it panicked with, if that was an error.
func (d *decoder) build(entry algorithmEntry, config map[string]any) (l Limiter, broken string, err error) {
	defer func() {
		if p := recover(); p != nil {
			broken = "panicked: " + cut(fmt.Sprint(p), maxCause)
			err, _ = p.(error)
		}
	}()
	l, err = entry.build(config, d.env)
	if err == nil && isNil(l) {
		broken = "returned neither a limiter nor an error"
	}
	return l, broken, err
}

// refused reports why a BuildFunc made no limiter. An error that says which fields
// are wrong is reported as those of config.
func (d *decoder) refused(config *node, entry algorithmEntry, err error) {
	fields, ok := fieldErrors(err)
	if !ok {
		d.report(&buildError{&ConfigError{config.path, "refused by " + quoted(string(entry.algorithm)), cut(err.Error(), maxCause)}, err})
		return
	}
	for _, e := range fields {
		value := cut(fmt.Sprint(e.Value), maxShown)
		d.report(&buildError{&ConfigError{config.path + "." + cut(e.Field, maxField), value, cut(e.Reason, maxCause)}, e.cause})
	}
}

// maxCause is how much is shown of what a BuildFunc says, in bytes.
const maxCause = 500

// fieldErrors returns the problems with fields that err is or joins, if it says
// nothing else.
func fieldErrors(err error) (all []*buildError, ok bool) {
	switch e := any(err).(type) { // itself: what wraps them has more to say
	case *ConfigError:
		return []*buildError{{e, e}}, e != nil
	case *buildError: // of a Factory that the BuildFunc has asked
		return []*buildError{{e.ConfigError, e}}, true
	case interface{ Unwrap() []error }:
		var texts []string
		for _, part := range e.Unwrap() {
			some, ok := fieldErrors(part)
			if !ok {
				return nil, false
			}
			all = append(all, some...)
			texts = append(texts, part.Error())
		}
		return all, len(all) > 0 && strings.Join(texts, "\n") == err.Error()
	}
	return nil, false
}

// A buildError is a ConfigError with what a BuildFunc returned behind it.
type buildError struct {
	*ConfigError
	cause error // may be nil
}

// Unwrap returns the ConfigError and its cause.
func (e *buildError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.ConfigError}
	}
	return []error{e.ConfigError, e.cause}
}

// tooLarge says what a copy of an algoConfig may cost.
var tooLarge = fmt.Sprintf("must be smaller: at most %d maps and lists within each other and, over all configs, %d values, each map or list counting as %d",
	maxDepth, maxCopied/2, costOfList)

// copyOf returns a copy of config, or nil after reporting why there is none.
func (d *decoder) copyOf(config *node) map[string]any {
	if !d.stringKeys(config) {
		return nil
	}
	d.copied += costOfList + config.len()
	if d.copied > maxCopied {
		d.bad(config.path, "a map", tooLarge)
		return nil
	}
	fields := make(map[string]any, config.len())
	for key, value := range config.all() {
		name, _ := textOf(key)
		v, ok := d.copyValue(reflect.ValueOf(value), 1)
		if !ok {
			d.bad(config.path, "a map", tooLarge)
			return nil
		}
		fields[name] = nil
		if v.IsValid() {
			fields[name] = v.Interface()
		}
	}
	return fields
}

// copyValue returns a copy of v, whose maps and lists are new, and reports whether
// it is small enough.
func (d *decoder) copyValue(v reflect.Value, depth int) (c reflect.Value, ok bool) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Map, reflect.Slice:
		if v.IsNil() {
			return v, true
		}
	default:
		return v, true
	}
	d.copied += costOfList + v.Len()
	if depth > maxDepth || d.copied > maxCopied {
		return v, false
	}
	if v.Kind() == reflect.Slice {
		return d.copyList(v, depth)
	}
	c = reflect.MakeMapWithSize(v.Type(), v.Len())
	for it := v.MapRange(); it.Next(); {
		value, ok := d.copyValue(it.Value(), depth+1)
		if !ok {
			return v, false
		}
		if !value.IsValid() {
			value = it.Value() // nil
		}
		c.SetMapIndex(it.Key(), value)
	}
	return c, true
}

// copyList is copyValue for a list.
func (d *decoder) copyList(v reflect.Value, depth int) (c reflect.Value, ok bool) {
	c = reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	switch v.Type().Elem().Kind() {
	case reflect.Interface, reflect.Map, reflect.Slice:
	default:
		reflect.Copy(c, v)
		return c, true
	}
	for i := range v.Len() {
		value, ok := d.copyValue(v.Index(i), depth+1)
		if !ok {
			return v, false
		}
		if value.IsValid() {
			c.Index(i).Set(value)
		}
	}
	return c, true
}
