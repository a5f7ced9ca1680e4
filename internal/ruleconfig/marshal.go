package ruleconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// Marshal returns the config of a rule in JSON. The given map has the value of each field of the rule, by
// the name of the field. In the JSON, the fields are in the order of RuleFields. Fields with zero values are
// left out, except the algorithm and the algoConfig.
func Marshal(values map[string]any) ([]byte, error) {
	text := bytes.NewBufferString("{")
	for _, f := range RuleFields {
		v := reflect.ValueOf(values[f.Name])
		if !v.IsValid() {
			return nil, fmt.Errorf("ruleconfig: Marshal: no value for the field %q", f.Name)
		}
		optional := f.Kind != AlgorithmName && f.Kind != AlgoConfig
		if optional && (v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0) {
			continue
		}
		value, err := json.Marshal(values[f.Name])
		if err != nil {
			return nil, err
		}
		if text.Len() > 1 {
			text.WriteByte(',')
		}
		text.WriteString(`"` + f.Name + `":`)
		text.Write(value)
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
