package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// unmatched is the endpoint of the calls whose method no service has. Their methods are texts
// of the client's, and would be an endlessness of endpoints.
const unmatched = "unmatched"

// fullMethod returns method with its first slash. Servers before grpc-go 1.79.3 also accept
// a path without it, and would call the same handler under a name that no rule has.
func fullMethod(method string) string {
	if method == "" || method[0] == '/' {
		return method
	}
	return "/" + method
}

// endpoint returns the Request.Endpoint for a call of method. known says that it may be a
// method of a service of this server.
func (i *Interceptors) endpoint(ctx context.Context, method string, known bool) string {
	switch {
	case i.config.Endpoint != nil:
		return i.config.Endpoint(ctx, method)
	case !known || method == "":
		return unmatched
	}
	return method
}

// Registered returns a function for [Config.Endpoint] that returns the full method if one of
// the services has it, and otherwise "unmatched". services is the method GetServiceInfo of the
// server. It is called once, for the first call; by then all services are registered.
//
// A server with a handler for unknown services needs it if it limits by [Interceptors.Limit],
// which cannot tell unknown methods from others, or if it registers a service without an
// implementation: the streams of such a service look like those of an unknown one. Registered
// panics if services is nil.
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

// methodsOf returns the full methods of services.
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

// Check returns an error that names each rule whose Endpoint none of the services gives, so that
// it limits nothing, as after a typing mistake. services is what GetServiceInfo of the server
// returns. It is for a test, or for the start of a server.
//
// A rule for a prefix needs one method that begins with it. Methods that [Config.Skip] skips
// give no endpoint. [Config.Endpoint] is called with each method and a context without
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

// gives reports whether one of the endpoints given meets a rule for want.
func gives(given []string, want string) bool {
	prefix, isPrefix := strings.CutSuffix(want, "*")
	for _, endpoint := range given {
		if endpoint == want || isPrefix && strings.HasPrefix(endpoint, prefix) {
			return true
		}
	}
	return false
}
