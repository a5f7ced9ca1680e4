package accesslog_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/accesslog"
)

// sampleLayout is how the lines of testdata/nginx.log look.
const sampleLayout = `$time_iso8601|$remote_addr|"$request"|$status|$body_bytes_sent|${request_time}|$host`

// samples has a log in each format. All logs have the same four requests, and a fifth line that is broken.
var samples = []struct {
	file   string
	format accesslog.Format
	status string // the column of the status
}{
	{"combined.log", accesslog.Combined, "status"},
	{"vhost.log", accesslog.VHost, "status"},
	{"alb.log", accesslog.ALB, "status"},
	{"clb.log", accesslog.CLB, "status"},
	{"cloudfront.log", accesslog.CloudFront, "sc-status"},
	{"iis.log", accesslog.IIS, "sc-status"},
	{"envoy.log", accesslog.Envoy, "response_code"},
	{"envoy.json.log", accesslog.Envoy, "response_code"},
	{"caddy.log", accesslog.Caddy, "status"},
	{"traefik.log", accesslog.Traefik, "DownstreamStatus"},
	{"gcp.log", accesslog.GCP, "httpRequest.status"},
	{"nginx.log", accesslog.Layout, "status"},
}

// requests returns what a text says of each request: the second after noon, the client, the address and the endpoint.
func requests(entries []accesslog.Entry) (texts []string) {
	for _, e := range entries {
		texts = append(texts, strings.Join([]string{string(rune('0' + (e.Time-noon)/1e9)), e.Client, e.IP, e.Endpoint}, " "))
	}
	return texts
}

// TestFormats reads a log of each format, with the name of the format and without.
func TestFormats(t *testing.T) {
	routes := new(accesslog.Routes)
	for _, pattern := range []string{"GET /users/{id}", "DELETE /users/{id}", "POST /login", "shop.example/static/"} {
		require.NoError(t, routes.Add(pattern))
	}
	unauthorized := func(text string) []accesslog.Where {
		w, err := accesslog.ParseWhere(text)
		require.NoError(t, err)
		return []accesslog.Where{w}
	}
	for _, row := range samples {
		t.Run(row.file, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", row.file))
			require.NoError(t, err)
			for _, format := range []accesslog.Format{row.format, accesslog.Auto} {
				o := accesslog.Options{Format: format}
				if row.format == accesslog.Layout {
					o.Format, o.Layout = accesslog.Layout, sampleLayout
				}
				got, counts := read(t, string(text), o)
				require.Equal(t, []string{
					"0 ip:203.0.113.9 203.0.113.9 /users/45",
					"1 ip:2001:db8:1:2::/64 2001:db8:1:2::/64 /login",
					"2 ip:2001:db8:1:2::/64 2001:db8:1:2::/64 /login",
					"3 ip:203.0.113.9 203.0.113.9 /static/app.js",
				}, requests(got))
				require.Equal(t, 5, counts.Lines, "%v", counts.Examples)
				require.Equal(t, 1, counts.Broken)

				o.IPv6Bits = 128
				got, _ = read(t, string(text), o)
				require.Equal(t, "2001:db8:1:2::5/128", got[1].IP)

				o.Routes, o.Where = routes, unauthorized(row.status+"=401")
				got, counts = read(t, string(text), o)
				require.Equal(t, []string{"1 ip:2001:db8:1:2::5/128 2001:db8:1:2::5/128 /login",
					"2 ip:2001:db8:1:2:ffff::9/128 2001:db8:1:2:ffff::9/128 /login"}, requests(got))
				require.Equal(t, 2, counts.Left)
				o.Where = unauthorized(row.status + "!=401")
				got, _ = read(t, string(text), o)
				require.Equal(t, "/users/{id}", got[0].Endpoint)
			}
		})
	}
}

// TestRoutes compares the endpoints of requests with those that httplimit would give them.
func TestRoutes(t *testing.T) {
	routes := new(accesslog.Routes)
	for _, pattern := range []string{"GET /users/{id}", "POST /users/{id}/pay", "/files/{path...}", "/exact/{$}", "api.example/v1/{x}"} {
		require.NoError(t, routes.Add(pattern))
	}
	for _, row := range []struct{ request, want string }{
		{"GET /users/45", "/users/{id}"}, {"HEAD /users/45", "/users/{id}"}, {"DELETE /users/45", "unmatched"},
		{"POST /users/45/pay?x", "/users/{id}/pay"}, {"GET /files/a/b/c", "/files/{path...}"}, {"GET /exact/", "/exact/{$}"},
		{"GET /exact/x", "unmatched"}, {"GET /users/a%2fb", "/users/{id}"}, {"GET /users//45", "/users/{id}"}, {"GET /%zz", "unmatched"},
		{"GET http://api.example/v1/7", "unmatched"},
	} {
		line := `10.0.0.1 - - [10/Oct/2026:12:00:00 +0000] "` + row.request + ` HTTP/1.1" 200 5` + "\n"
		got, counts := read(t, line+line, accesslog.Options{Routes: routes})
		require.Len(t, got, 2, "%v", counts.Examples)
		require.Equal(t, row.want, got[0].Endpoint, row.request)
		require.Equal(t, row.want, got[1].Endpoint, "the second answer is a kept one")
	}
	got, _ := read(t, "time,client,path,host\n1,a,/users/45,\n1,a,/v1/7,api.example\n1,a,/nothing,\n", accesslog.Options{Routes: routes})
	require.Equal(t, "/users/{id}", got[0].Endpoint, "without a method")
	require.Equal(t, "/v1/{x}", got[1].Endpoint, "by the host")
	require.Equal(t, "unmatched", got[2].Endpoint)
	for pattern, want := range map[string]string{
		"/{": `"/{" is no pattern of http.ServeMux`, "": "is no pattern", "GET /users/{name}": "conflicts with",
	} {
		require.ErrorContains(t, routes.Add(pattern), want)
	}
}

// TestAddresses has addresses as logs write them.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "203.0.113.9:4321": "203.0.113.9", "::ffff:203.0.113.9": "203.0.113.9",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64", "[2001:db8:1:2:3::4]:443": "2001:db8:1:2::/64", "[2001:db8:1:2:3::4]": "2001:db8:1:2::/64",
		"fe80::1%eth0": "fe80::/64", "64:ff9b::cb00:7109": "203.0.113.9", "10.0.0.1, 203.0.113.9": "203.0.113.9",
		"2001:db8::/48": "2001:db8::/48", "host.example": "host.example",
		"10.0.0.256": "10.0.0.256", "10.0.0.01": "10.0.0.01", "10.0.0": "10.0.0", "10.0..1": "10.0..1", "host.example:80": "host.example:80",
	} {
		got, _ := read(t, `{"time":1,"ip":"`+text+`"}`, accesslog.Options{})
		require.Equal(t, want, got[0].IP, text)
		name := "ip:" + want
		if strings.HasPrefix(text, "host") || strings.HasPrefix(text, "10.0.") && !strings.Contains(text, ",") {
			name = want
		}
		require.Equal(t, name, got[0].Client, text)
	}
	got, _ := read(t, `{"time":1,"client":"10.0.0.1:80","ip":"10.0.0.2:80"}`, accesslog.Options{})
	require.Equal(t, "10.0.0.1:80", got[0].Client, "the name of a client is no address")
	got, _ = read(t, `{"time":1,"client":"10.0.0.1:80"}`, accesslog.Options{Fields: fields(t, "ip=client")})
	require.Equal(t, "ip:10.0.0.1", got[0].Client, "unless it is its address too")
}

// TestEndpoints has endpoints in columns that are not called url.
func TestEndpoints(t *testing.T) {
	for text, want := range map[string]string{
		"/a?b=c": "/a", "/a#b": "/a", "/a b?c": "/a b", "https://h/a/b?c": "/a/b", "https://h": "/",
		"GET /users/{id}": "GET /users/{id}", "search": "search", "what?": "what?", "/pkg.Service/Method": "/pkg.Service/Method",
	} {
		got, _ := read(t, `{"time":1,"client":"a","endpoint":"`+text+`"}`, accesslog.Options{})
		require.Equal(t, want, got[0].Endpoint, text)
	}
}

func TestWhere(t *testing.T) {
	const log = "time,client,status,tag\n1,a,200,x\n1,b,429,y\n1,c,,\n"
	for text, want := range map[string]string{
		"status=200": "a", "status != 429": "ac", "status<429": "a", "status<=429": "ab", "status>200": "b", "status>=200": "ab",
		"tag=x": "a", "tag!=x": "bc", "status=200.0": "a", "tag=": "c", "status=": "c",
	} {
		w, err := accesslog.ParseWhere(text)
		require.NoError(t, err, text)
		got, counts := read(t, log, accesslog.Options{Where: []accesslog.Where{w}})
		clients := ""
		for _, e := range got {
			clients += e.Client
		}
		require.Equal(t, want, clients, text)
		require.Equal(t, 3-len(want), counts.Left)
	}
	for _, text := range []string{"", "status", "=5", "status!5", "tag<x"} {
		_, err := accesslog.ParseWhere(text)
		require.Error(t, err, text)
	}
	w, err := accesslog.ParseWhere("code=5")
	require.NoError(t, err)
	r, err := accesslog.NewReader(strings.NewReader(log), accesslog.Options{Where: []accesslog.Where{w}})
	require.NoError(t, err)
	require.ErrorContains(t, r.Next(new(accesslog.Entry)), `no column "code": the columns are time, client, status, tag`)
}

func TestLayout(t *testing.T) {
	got, counts := read(t, "10.0.0.1 [1791633600.250] \"GET /a\\\"b HTTP/1.1\" rest\n10.0.0.1 [17\nx\n", accesslog.Options{
		Format: accesslog.Layout, Layout: `$remote_addr [$msec] "$request" `,
	})
	require.Equal(t, []accesslog.Entry{{Time: noon + 25e7, Client: "ip:10.0.0.1", IP: "10.0.0.1", Endpoint: `/a\"b`, Cost: 1}}, got)
	require.Equal(t, 2, counts.Broken)
	for layout, want := range map[string]string{
		"none": "has no variable", "$a$b": "nothing between $a and", "${a": "nothing closes", "$ x": "without a name",
		"$remote_addr $status": "no column for the time: must be time_iso8601 or msec or time_local",
	} {
		r, err := accesslog.NewReader(strings.NewReader("x\n"), accesslog.Options{Format: accesslog.Layout, Layout: layout})
		require.NoError(t, err)
		require.ErrorContains(t, r.Next(new(accesslog.Entry)), want)
	}
}
