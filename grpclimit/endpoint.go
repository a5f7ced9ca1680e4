package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// unmatched is the endpoint of all calls to methods that no service has. The method itself is not used as
// the endpoint, because a client can invent methods, and there would be no limit to the number of
// endpoints.
const unmatched = "unmatched"

// fullMethod returns the method with a leading slash. Versions of grpc-go before 1.79.3 also accept a
// method without the slash. A client could use this to call a handler under a name that matches no rule.
func fullMethod(method string) string {
	if method == "" || method[0] == '/' {
		return method
	}
	return "/" + method
}

// endpoint returns the Request.Endpoint for a call of the given method. The argument known is true if a
// service of this server has the method.
func (i *Interceptors) endpoint(ctx context.Context, method string, known bool) string {
	switch {
	case i.config.Endpoint != nil:
		return i.config.Endpoint(ctx, method)
	case !known || method == "":
		return unmatched
	}
	return method
}

// Registered returns a function for [Config.Endpoint]. That function returns the full method if one of the
// services has the method, and "unmatched" otherwise. The parameter services is the method GetServiceInfo of
// the server. It is called once, at the first call to the server, when all services are registered. Registered
// panics if services is nil.
//
// A server that has a handler for unknown services needs Registered in two cases. In the first case, it
// uses [Interceptors.Limit], which cannot recognize unknown methods. In the second case, it registers a
// service with a nil implementation: the streams of this service look like streams of an unknown service.
func Registered(services func() map[string]grpc.ServiceInfo) func(ctx context.Context, method string) string {
	if services == nil {
		panic("grpclimit: Registered needs the services of a server")
	}
	known := sync.OnceValue(func() map[string]bool {
		methods := make(map[string]bool)
		for _, method := range methodsOf(services()) {
			methods[method] = true
		}
		return methods
	})
	return func(_ context.Context, method string) string {
		if known()[method] {
			return method
		}
		return unmatched
	}
}

// methodsOf returns the full methods of the given services.
func methodsOf(services map[string]grpc.ServiceInfo) (methods []string) {
	for name, service := range services {
		for _, method := range service.Methods {
			methods = append(methods, "/"+name+"/"+method.Name)
		}
	}
	return methods
}

// The methods of the standard health service.
const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthList  = "/grpc.health.v1.Health/List"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// SkipHealth is a function for [Config.Skip] that returns true for the methods of the standard
// health service, grpc.health.v1.Health.
func SkipHealth(method string) bool {
	return method == healthCheck || method == healthWatch || method == healthList
}

// Check returns an error that names each rule whose Endpoint matches no method of the services. Such a
// rule limits nothing, and often has a typing error. The parameter services is the result of
// GetServiceInfo of the server. Call Check in a test, or when the server starts.
//
// A rule for a prefix matches if at least one method begins with the prefix. Check ignores the methods that
// [Config.Skip] skips. For each other method, it calls [Config.Endpoint] with a context that has no
// metadata.
func (i *Interceptors) Check(services map[string]grpc.ServiceInfo) error {
	given := []string{unmatched}
	for _, method := range methodsOf(services) {
		if i.config.Skip == nil || !i.config.Skip(method) {
			given = append(given, i.endpoint(context.Background(), method, true))
		}
	}
	var problems []error
	rules, _ := i.limiter.Rules()
	for _, rule := range rules {
		if rule.Endpoint != "" && !gives(given, rule.Endpoint) {
			problems = append(problems, fmt.Errorf("grpclimit: rule %q limits nothing: no method gives its endpoint %q", rule.Name, rule.Endpoint))
		}
	}
	return errors.Join(problems...)
}

// gives reports whether a rule matches one of the given endpoints. The parameter want is the Endpoint of the
// rule; if it ends with "*", it is a prefix.
func gives(given []string, want string) bool {
	prefix, isPrefix := strings.CutSuffix(want, "*")
	for _, endpoint := range given {
		if endpoint == want || isPrefix && strings.HasPrefix(endpoint, prefix) {
			return true
		}
	}
	return false
}
