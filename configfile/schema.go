package configfile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/internal/confmap"
	"github.com/ratelimit-go/ratelimit/internal/ruleconfig"
)

//go:generate env RATELIMIT_WRITE=1 go test -count=1 -run ^TestSchemaFile$ .

// Schema returns a JSON Schema (draft 2020-12) for the documents that [Parse] reads. Editors can use it,
// and so can checks that do not run Go. This package refuses every document that the schema refuses.
// The reverse does not hold, because a schema cannot express all conditions on rules.
//
// algorithms are the names of custom algorithms that rules may use in addition to the built-in ones. The
// schema does not check their algoConfig. The file schema.json of this package contains the schema
// without custom algorithms.
func Schema(algorithms ...string) []byte {
	defs := schema{
		"rate":     rateObject(ruleconfig.RateFields, nil),
		"own":      rateObject(slices.Concat(ruleconfig.RateFields, ruleconfig.AlgoWarmupFields), nil),
		"rule":     ruleSchema(algorithms, false),
		"default":  ruleSchema(algorithms, true),
		"override": overrideSchema(),
		"rules":    schema{"type": "array", "maxItems": maxRules, "items": ref("rule")},
	}
	document := object(documentFields, func(f ruleconfig.Field) schema {
		switch f.Name {
		case "rules", "default":
			return ref(f.Name)
		case "overrides":
			return schema{"type": "array", "maxItems": maxOverrides, "items": ref("override")}
		}
		return schema{"type": "string", "maxLength": confmap.MaxText}
	})
	document["anyOf"] = []schema{
		has("default"),
		{"allOf": []schema{has("rules"), {"patternProperties": schema{spelt("rules"): schema{"minItems": 1}}}}},
	}
	all := schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     "https://github.com/ratelimit-go/ratelimit/configfile/schema.json",
		"title":   "Rules of a rate limiter",
		"$defs":   defs,
		"if":      schema{"type": "array"},
		"then":    schema{"minItems": 1, "$ref": "#/$defs/rules"},
		"else":    document,
	}
	text, err := json.MarshalIndent(all, "", "\t")
	if err != nil {
		panic(err) // impossible: a schema consists of strings, numbers, maps and lists
	}
	return append(text, '\n')
}

// A schema is a JSON Schema, or a part of one.
type schema = map[string]any

// ref returns a schema that refers to the definition with this name in $defs.
func ref(name string) schema { return schema{"$ref": "#/$defs/" + name} }

// ruleSchema returns the schema of a rule, or of the default rule.
func ruleSchema(algorithms []string, isDefault bool) schema {
	value := func(f ruleconfig.Field) schema { return valueOf(f, isDefault) }
	var flat []ruleconfig.Field
	for _, f := range ruleconfig.RuleFields {
		if f.Kind != ruleconfig.AlgoConfig {
			flat = append(flat, f)
		}
	}
	nested := object(ruleconfig.RuleFields, value)
	inFlat := rateObject(slices.Concat(flat, ruleconfig.RateFields, ruleconfig.AlgoWarmupFields), value)
	builtin := schema{"if": has("algoConfig"), "then": nested, "else": inFlat}
	all := []schema{has("algorithm"), builtin, noBucket()}
	if len(algorithms) > 0 {
		isCustom := spelt(algorithms...)
		custom := object(ruleconfig.RuleFields, func(f ruleconfig.Field) schema {
			switch f.Kind {
			case ruleconfig.AlgorithmName:
				return schema{"type": "string", "anyOf": []schema{{"enum": algorithms}, {"pattern": isCustom}}, "description": f.Says}
			case ruleconfig.AlgoConfig:
				return schema{"type": "object", "description": f.Says}
			case ruleconfig.Tiers, ruleconfig.WarmupMap, ruleconfig.PenaltyMap:
				return schema{"not": schema{}}
			}
			return value(f)
		})
		custom["allOf"] = []schema{has("algoConfig")}
		names := fieldNamed(ruleconfig.RuleFields, "algorithm")
		all[1] = schema{"if": schema{"patternProperties": schema{spelt(names...): schema{"pattern": isCustom}}}, "then": custom, "else": builtin}
	}
	if !isDefault {
		all = append(all, schema{"anyOf": []schema{has("endpoint"), has("name")}})
	}
	return schema{"type": "object", "allOf": all}
}

// overrideSchema returns the schema of an override.
func overrideSchema() schema {
	o := object(overrideFields, func(f ruleconfig.Field) schema {
		text := schema{"type": "string"}
		switch f.Name {
		case "effect":
			return choice(effects...)
		case "rules":
			return schema{"type": "array", "minItems": 1, "items": schema{"type": "string", "minLength": 1}}
		case "until":
			text["pattern"] = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{1,2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`
		case "rate":
			text["pattern"] = rateText
		case "client", "note":
			text["maxLength"] = map[string]int{"client": 4096, "note": 256}[f.Name]
		}
		return text
	})
	isRate := schema{"patternProperties": schema{spelt("effect"): schema{"pattern": spelt(ratelimit.EffectRate)}}}
	o["allOf"] = []schema{
		has("effect"), {"anyOf": []schema{has("client"), has("ip")}}, {"if": isRate, "then": has("rate"), "else": schema{"not": has("rate")}},
	}
	return o
}

// rateObject returns the schema of an object with these fields, which include the fields of a rate. The
// parameter value is a function that returns the schema of what a field contains. If it is nil, rateObject
// uses valueOf.
func rateObject(fields []ruleconfig.Field, value func(ruleconfig.Field) schema) schema {
	if value == nil {
		value = func(f ruleconfig.Field) schema { return valueOf(f, false) }
	}
	o := object(fields, value)
	bucket, window, text := ruleconfig.RateForms[0], ruleconfig.RateForms[1], ruleconfig.RateForms[2][0]
	rateIs := func(kind string) schema {
		return schema{"patternProperties": schema{spelt(text...): schema{"type": kind}}}
	}
	o["anyOf"] = []schema{
		{"allOf": []schema{has(bucket[0]...), has(bucket[1]...)}},
		// In an object with the fields of a window, "rate" may be a number: the requests in a window.
		{"allOf": []schema{has(append(slices.Clip(window[0]), text...)...), has(window[1]...), rateIs("integer")}},
		{"allOf": []schema{has(text...), rateIs("string")}, "not": has(slices.Concat(window...)...)},
	}
	never := []schema{
		{"allOf": []schema{has(slices.Concat(bucket...)...), has(append(slices.Concat(window...), text...)...)}},
		{"allOf": []schema{has(window[0]...), has(text...)}},
		{"allOf": []schema{has(bucket[0]...), has(bursts()...)}},
	}
	for _, pair := range ruleconfig.SameFields {
		never = append(never, schema{"allOf": []schema{has(pair[0]), has(pair[1])}})
	}
	o["not"] = schema{"anyOf": never}
	return o
}

// bursts returns the names of the fields that set the burst of a rate, such as "burst" and "burstSize".
func bursts() (names []string) {
	for _, f := range ruleconfig.RateFields {
		if f.Kind == ruleconfig.Burst {
			names = append(names, f.Name)
		}
	}
	return names
}

// ruleAlgorithms are the algorithms that a rule can have.
var ruleAlgorithms = append(ratelimit.Algorithms(), ratelimit.AlgorithmInFlight)

// noBucket returns a schema for a rule. If the algorithm of the rule counts in windows, as FixedWindow
// does, the schema forbids the fields of a bucket, such as "capacity".
func noBucket() schema {
	var windowed []string
	for _, names := range ruleconfig.AllNames(ruleAlgorithms) {
		for _, name := range names {
			if ratelimit.Algorithm(names[0]).Windowed() {
				windowed = append(windowed, name, name+ruleconfig.Suffix)
			}
		}
	}
	named := schema{"required": []string{"algorithm"},
		"properties": schema{"algorithm": schema{"type": "string", "pattern": spelt(windowed...)}}}
	none := schema{"not": has(append(slices.Concat(ruleconfig.RateForms[0]...), bursts()...)...)}
	inside := schema{spelt(fieldNamed(ruleconfig.RuleFields, "algoConfig")...): none}
	return schema{"if": named, "then": schema{"allOf": []schema{none, {"patternProperties": inside}}}, "else": schema{}}
}

// object returns the schema of an object that has only these fields, in any spelling that this package
// reads. The parameter value is a function that returns the schema of what a field contains.
func object(fields []ruleconfig.Field, value func(ruleconfig.Field) schema) schema {
	properties, patterns := schema{}, schema{}
	for _, f := range fields {
		v := value(f)
		if _, ok := v["description"]; !ok && f.Says != "" {
			v["description"] = f.Says
		}
		properties[f.Name] = v
		patterns[spelt(append([]string{f.Name}, f.Also...)...)] = v
	}
	return schema{"type": "object", "properties": properties, "patternProperties": patterns, "additionalProperties": false}
}

// The function has returns the schema of an object that has at least one of the fields with these names,
// in any spelling.
func has(names ...string) schema {
	var all []string
	for _, name := range names {
		for _, fields := range [][]ruleconfig.Field{
			documentFields, overrideFields, ruleconfig.RuleFields, ruleconfig.RateFields, ruleconfig.WarmupFields, ruleconfig.PenaltyFields,
		} {
			all = append(all, fieldNamed(fields, name)...)
		}
	}
	some := []schema{{"not": schema{"propertyNames": schema{"not": schema{"pattern": spelt(all...)}}}}}
	if len(names) == 1 { // "required" gives clearer errors, so it comes first; it knows only the usual spelling of the name
		some = append([]schema{{"required": names}}, some...)
	}
	return schema{"anyOf": some}
}

// fieldNamed finds the field with the given name, and returns this name and then all other names of the
// field.
func fieldNamed(fields []ruleconfig.Field, name string) []string {
	for _, f := range fields {
		if f.Name == name {
			return append([]string{name}, f.Also...)
		}
	}
	return nil
}

// rateText is a regular expression that matches every rate that is written as a text, such as "100/m" or
// "unlimited". It also matches some texts that are no rates.
const rateText = `[0-9][\s\S]*[A-Za-zµμ]|[uU][nN]`

// valueOf returns the schema of the value of the field f, in a rule or in the default rule.
func valueOf(f ruleconfig.Field, isDefault bool) schema {
	text := schema{"type": "string", "maxLength": confmap.MaxText}
	count := schema{"type": "integer", "minimum": 1}
	number := schema{"type": "number", "exclusiveMinimum": 0}
	rate := schema{"type": "string", "maxLength": confmap.MaxText, "pattern": rateText}
	switch f.Kind {
	case ruleconfig.Endpoint:
		if isDefault {
			return schema{"const": ""}
		}
		text["pattern"] = `^[^*]*\*?$`
	case ruleconfig.Key:
		part := `[^+A-Za-z]*(` + folded(ruleconfig.KeyWords()...) + `|[aA][tT][tT][rR]:[^+]+)[^+A-Za-z]*`
		text["anyOf"] = []schema{{"enum": ruleconfig.KeyWords()}, {"pattern": "^" + part + `(\+` + part + ")*$"}}
		list := schema{"type": "array", "minItems": 1, "maxItems": confmap.MaxName,
			"items": schema{"type": "string", "pattern": "^" + part + "$"}}
		return schema{"anyOf": []schema{text, list}}
	case ruleconfig.Mode:
		return choice(string(ratelimit.ModeEnforce), string(ratelimit.ModeShadow), string(ratelimit.ModeAdvise))
	case ruleconfig.Bool:
		if isDefault {
			return schema{"const": false}
		}
		return schema{"type": "boolean"}
	case ruleconfig.AlgorithmName:
		return algorithm()
	case ruleconfig.AlgoConfig:
		return ref("own")
	case ruleconfig.WarmupMap:
		o := object(ruleconfig.WarmupFields, func(f ruleconfig.Field) schema { return valueOf(f, false) })
		o["allOf"] = []schema{has("from"), has("over")}
		return o
	case ruleconfig.PenaltyMap:
		o := object(ruleconfig.PenaltyFields, func(f ruleconfig.Field) schema { return valueOf(f, false) })
		o["allOf"] = []schema{has("after"), has("within"), has("for")}
		return o
	case ruleconfig.Tiers:
		return schema{"type": "object", "maxProperties": ruleconfig.MaxTiers, "propertyNames": schema{"maxLength": confmap.MaxText},
			"additionalProperties": schema{"anyOf": []schema{rate, ref("rate")}}}
	case ruleconfig.Unit:
		return schema{"type": "string", "pattern": "^[a-z0-9._-]{0,64}$"}
	case ruleconfig.StoreError:
		return schema{"type": "string", "anyOf": []schema{{"enum": []string{"open", "closed", "local"}}, {"pattern": "^local:0*[1-9][0-9]*$"}}}
	case ruleconfig.WindowName:
		return choice("day", "week", "month", "year", "first")
	case ruleconfig.Capacity, ruleconfig.Requests, ruleconfig.Burst, ruleconfig.FirstDay:
		return count
	case ruleconfig.PerSecond, ruleconfig.PerMillisecond, ruleconfig.Milliseconds, ruleconfig.Seconds:
		return number
	case ruleconfig.RateText:
		return schema{"anyOf": []schema{rate, count}}
	}
	return text
}

// algorithm returns the schema of the name of a built-in algorithm.
func algorithm() schema {
	var own, all []string
	for _, names := range ruleconfig.AllNames(ruleAlgorithms) {
		own = append(own, names[0])
		for _, name := range names {
			all = append(all, name, name+ruleconfig.Suffix)
		}
	}
	return schema{"type": "string", "anyOf": []schema{{"enum": own}, {"pattern": spelt(all...)}}}
}

// choice returns the schema of a string that is one of the strings in names, in any spelling.
func choice(names ...string) schema {
	return schema{"type": "string", "anyOf": []schema{{"enum": names}, {"pattern": spelt(names...)}}}
}

// spelt returns a regular expression that matches each string in names, in any spelling that
// [confmap.Fold] accepts: upper and lower case, with "-" and "_" anywhere.
func spelt(names ...string) string { return "^(" + folded(names...) + ")$" }

// The function folded returns the same regular expression as the function spelt, but without "^(" at the
// beginning and ")$" at the end.
func folded(names ...string) string {
	const between = "[-_]*"
	all := make([]string, len(names))
	for i, name := range names {
		var b strings.Builder
		b.WriteString(between)
		for _, r := range confmap.Fold(name) {
			if 'a' <= r && r <= 'z' {
				fmt.Fprintf(&b, "[%c%c]", r, r-'a'+'A')
			} else {
				b.WriteString(regexp.QuoteMeta(string(r)))
			}
			b.WriteString(between)
		}
		all[i] = b.String()
	}
	return strings.Join(all, "|")
}
