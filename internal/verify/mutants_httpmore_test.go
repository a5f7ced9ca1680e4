package verify

// httpMoreMutants are faults in what a Middleware tells clients and operators.
var httpMoreMutants = []mutant{
	{
		name: "each outage is the service's fault", file: "httplimit/policy.go",
		old: "return i >= 0 && rules[i].OnStoreError == ratelimit.FailClosed",
		new: "return i >= 0",
		by:  "^TestHTTPStatus$", why: "the client has used its share",
	},
	{
		name: "no answer is a denial", file: "httplimit/policy.go",
		old: "return http.StatusInternalServerError\n\t}\n\trules, defaultRule",
		new: "}\n\trules, defaultRule",
		by:  "^TestHTTPStatus$", why: "the client would be told to ask less often",
	},
}
