package connectlimit

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/ratelimit-go/ratelimit"
)

// Check returns an error that names each rule whose Endpoint is no procedure of these services: such a rule limits
// nothing. Usually, its Endpoint is misspelled. The names of services, such as "shop.v1.Items", are constants of the
// generated code. A service that the program does not know is an error, too. Call Check in a test, or when the server
// starts. If Config.Endpoint is set, Check does not check the rules, and only reports unknown services.
func (i *Interceptor) Check(services ...string) error {
	given, err := procedures(services)
	return errors.Join(err, i.adapter.Check(given))
}

// CheckRules returns a function that checks the rules that it gets, as [Interceptor.Check] checks the rules of the
// limiter. Set it as the field Check of a Watcher of the package configfile: the Watcher then refuses a file with a
// rule that would limit nothing.
func (i *Interceptor) CheckRules(services ...string) func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
	given, err := procedures(services)
	check := i.adapter.CheckRules(func() []string { return given })
	return func(rules []ratelimit.Rule, defaultRule *ratelimit.Rule) error {
		return errors.Join(err, check(rules, defaultRule))
	}
}

// procedures returns the procedures of the services with these names.
func procedures(services []string) (paths []string, err error) {
	var problems []error
	for _, name := range services {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		service, ok := found.(protoreflect.ServiceDescriptor)
		if err != nil || !ok {
			problems = append(problems, fmt.Errorf("connectlimit: the program has no service %q", name))
			continue
		}
		for k := range service.Methods().Len() {
			paths = append(paths, fmt.Sprintf("/%s/%s", name, service.Methods().Get(k).Name()))
		}
	}
	return paths, errors.Join(problems...)
}
