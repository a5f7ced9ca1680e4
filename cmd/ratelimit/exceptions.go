package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/ratelimit-go/ratelimit"
)

// exceptionFlags hold the flags that say where to read overrides: from a server or from a file. The limiter gets these overrides
// in addition to those in its file of rules.
type exceptionFlags struct {
	server *serverFlags
	path   *string
}

func newExceptionFlags(fs *flag.FlagSet) *exceptionFlags {
	return &exceptionFlags{
		newRedisFlags(fs),
		fs.String("overrides", "", "a `file` of overrides, as \"ratelimit overrides -json\" prints them"),
	}
}

// apply gives the limiter l the overrides from the server or the file that the flags name. For each override that cannot
// have an effect on the rules of l, it prints a note.
func (f *exceptionFlags) apply(ctx context.Context, t *terminal, l *ratelimit.RateLimiter) error {
	var all []ratelimit.Override
	var err error
	switch {
	case *f.path != "" && *f.server.redis != "":
		return usageError("-overrides and -redis are given: one of them says which overrides there are")
	case *f.server.redis == "" && *f.server.name != "":
		return usageError("-redis is missing: the server that has the overrides of the limiter -name")
	case *f.path != "":
		all, err = readOverrides(*f.path)
	case *f.server.redis == "":
		return nil
	case *f.server.name == "":
		return usageError("-name is missing: the name of the limiter, as WithName says")
	default:
		all, err = f.server.overrides(ctx, t)
	}
	if err != nil || len(all) == 0 {
		return err
	}
	if err = l.Override(ctx, all...); !isMistake(err) {
		return err
	}
	for _, o := range all {
		switch err := l.Override(ctx, o); {
		case isMistake(err):
			t.warn("note: without effect: %s: %s", plain(o.String()), asFlag(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// overrides returns the overrides that the server stores for the limiter with the name in the flag -name.
func (f *serverFlags) overrides(ctx context.Context, t *terminal) ([]ratelimit.Override, error) {
	s, err := f.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer s.close()
	var c ratelimit.OverrideChange
	err = s.within(ctx, func(ctx context.Context) (err error) {
		c, err = s.redis().OverridesSince(ctx, *f.name, ratelimit.OverrideVersion{})
		return err
	})
	if err == nil && len(c.Set) == 0 {
		if err := s.checkName(ctx, *f.name); err != nil {
			t.warn("note: no override of limiter %s: %v", name(*f.name), err)
		}
	}
	return c.Set, err
}

// readOverrides reads a file of overrides. The file has an object with the list "overrides", or only the list.
func readOverrides(path string) ([]ratelimit.Override, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.New(plain(strings.TrimPrefix(err.Error(), "open ")))
	}
	var out struct {
		Overrides *[]overrideJSON `json:"overrides"`
	}
	if err := json.Unmarshal(text, &out); err != nil && json.Unmarshal(text, &out.Overrides) != nil {
		return nil, fmt.Errorf("%s: %s", plain(path), plain(err.Error()))
	}
	if out.Overrides == nil {
		return nil, fmt.Errorf(`%s: must have the list "overrides"`, plain(path))
	}
	var all []ratelimit.Override
	for i, j := range *out.Overrides {
		o := ratelimit.Override{Client: j.Client, IP: j.IP, Effect: j.Effect, Rules: j.Rules, Note: j.Note}
		if j.Until != nil {
			o.Until = *j.Until
		}
		if j.Rate != "" {
			if o.Rate, err = ratelimit.ParseRate(j.Rate); err != nil {
				return nil, fmt.Errorf("%s: overrides[%d].rate: %s", plain(path), i, asFlag(err))
			}
		}
		o.Effect = cmp.Or(o.Effect, "none")
		all = append(all, o)
	}
	return all, nil
}
