package ratelimit

func decodeRules(configs []map[string]any, defaultConfig map[string]any, set *settings) ([]Rule, *Rule, error) {
	return nil, nil, nil
}
