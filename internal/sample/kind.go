package sample

// A Kind says which decisions of a limiter get log lines of the same kind. A [Log] leaves out repeated lines of a kind.
type Kind struct {
	Rule            string // name of the rule that the decisions are about
	Key             uint64 // hash of the key; 0 if something has failed, because a failure concerns all clients
	Allowed, Shadow bool   // whether the request was granted, and whether the rule only watches
	Cause           string // what has failed, or empty
}

// Message returns the message of a log line of this kind, such as "rate limit: denied because the store failed".
func (k *Kind) Message() string {
	text, joint := "denied", " because "
	if k.Allowed {
		text, joint = "allowed", " although "
	}
	if k.Shadow {
		text = "would have " + text
	}
	if k.Cause != "" {
		text += joint + k.Cause
	}
	return "rate limit: " + text
}
