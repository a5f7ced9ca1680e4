package httplimit

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ratelimit-go/ratelimit/internal/override"
)

// skips reports whether a client with this address is in one of Config.SkipNetworks. The parameter doubted is
// true if the address may belong to a proxy that Config.Proxies does not trust. Then the result is false,
// because everybody could send requests through that proxy.
func (m *Middleware) skips(addr netip.Addr, doubted bool) bool {
	for _, network := range m.config.SkipNetworks {
		if network.Contains(addr) {
			if doubted {
				m.logs.once(warnExempt)
			}
			return !doubted
		}
	}
	return false
}

// context returns the context with which to ask the limiter about the request. Usually this is ctx, the request's own
// context, and the second result is nil. But if the address of the request may belong to a proxy that is not
// trusted, both results are the same Doubt: a context with which no Override exempts the request by its address.
func (v *visit) context(ctx context.Context) (_ context.Context, doubt *override.Doubt) {
	req := &v.info.Request
	return override.InDoubt(ctx, v.doubtful, req.IP, req.Client, addressPrefix+v.doubtful)
}

// notPrefix is the reason in the error for a prefix that is not valid.
const notPrefix = "must be a valid prefix, such as 10.0.0.0/8"

// asIPv4 returns the reason in the error for a prefix of IPv4 addresses that is written as IPv6, such as
// ::ffff:10.0.0.0/104. The reason says how to write the prefix as IPv4.
func asIPv4(prefix netip.Prefix) string {
	return "must be written as IPv4: " + netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96).String()
}

// networkProblems returns an error for each invalid element of Config.SkipNetworks.
func networkProblems(networks []netip.Prefix) (problems []error) {
	for i, network := range networks {
		field := fmt.Sprintf("skipNetworks[%d]", i)
		switch {
		case !network.IsValid():
			problems = append(problems, wrong(field, network, notPrefix))
		case network.Addr().Is4In6() && network.Bits() >= 96:
			problems = append(problems, wrong(field, network, asIPv4(network.Masked())))
		case network.Bits() == 0:
			problems = append(problems, wrong(field, network, "must not be everybody: list networks of your own, such as 10.1.0.0/16"))
		case network != network.Masked():
			problems = append(problems, wrong(field, network, "has bits set beyond its length: must be "+network.Masked().String()))
		}
	}
	return problems
}
