package accesslog

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
)

// A Format is the format of the lines of a log.
type Format string

// The formats of a log. With Auto, the Reader guesses the format from the first line of the log.
const (
	Auto       Format = "auto"
	Combined   Format = "combined"   // the common log format or the combined log format
	VHost      Format = "vhost"      // vhost_combined of Apache: the name of a virtual host, followed by a line as in Combined
	JSON       Format = "json"       // one JSON object on each line
	CSV        Format = "csv"        // one record of comma-separated values on each line
	ALB        Format = "alb"        // Application Load Balancer of AWS
	CLB        Format = "clb"        // Classic Load Balancer of AWS
	CloudFront Format = "cloudfront" // standard logs of CloudFront
	IIS        Format = "iis"        // extended log format of W3C, as IIS writes it
	Envoy      Format = "envoy"      // the default format of Envoy, or JSON with the field names of Envoy's documentation
	Caddy      Format = "caddy"      // JSON of Caddy
	Traefik    Format = "traefik"    // JSON of Traefik, or its default format, which is Combined
	GCP        Format = "gcp"        // log entries of Cloud Logging with an httpRequest, a JSON object on each line
	Layout     Format = "layout"     // the format that Options.Layout describes
)

// Formats returns the formats that a user may name, in the order in which they are listed.
func Formats() []Format {
	return []Format{Auto, Combined, VHost, "common", JSON, CSV, ALB, CLB, CloudFront, Envoy, Caddy, Traefik, GCP, IIS}
}

// The type named "known" describes a format. Its map has the default columns of each part of an Entry. If the lines have a fixed
// layout, known.layout describes the lines in the syntax of log_format in nginx.conf. Otherwise known.layout is empty.
type known struct {
	fields Fields
	layout string
}

// The layouts of formats whose lines contain only values, and no names of columns. Each layout ends with the last column
// that is needed. The rest of a line is not read, so a newer version of the format may have more columns.
const (
	albLayout = `$type $time $elb $client $target $request_processing_time $target_processing_time $response_processing_time ` +
		`$status $target_status $received_bytes $sent_bytes "$request" "$user_agent"`
	clbLayout = `$time $elb $client $target $request_processing_time $target_processing_time $response_processing_time ` +
		`$status $target_status $received_bytes $sent_bytes "$request" "$user_agent"`
	envoyLayout = `[$start_time] "$request" $response_code $rest "$x_forwarded_for" "$user_agent" "$request_id" "$authority"`
)

var formats = map[Format]known{
	Combined: {fields: Fields{"time": {"time"}, "client": {"host"}, "endpoint": {"path"}, "ip": {"host"}, "method": {"method"}}},
	VHost: {fields: Fields{"time": {"time"}, "client": {"host"}, "endpoint": {"path"}, "ip": {"host"}, "method": {"method"},
		"host": {"vhost"}}},
	JSON: {fields: plainFields},
	CSV:  {fields: plainFields},
	Layout: {fields: Fields{
		"time": {"time_iso8601", "msec", "time_local", "time", "start_time"}, "client": {"remote_addr"}, "ip": {"remote_addr"},
		"endpoint": {"request_uri", "uri", "request"}, "method": {"request_method"}, "host": {"host"},
	}},
	ALB: {fields: Fields{"time": {"time"}, "client": {"client"}, "ip": {"client"}, "endpoint": {"request"}}, layout: albLayout},
	CLB: {fields: Fields{"time": {"time"}, "client": {"client"}, "ip": {"client"}, "endpoint": {"request"}}, layout: clbLayout},
	CloudFront: {fields: Fields{"time": {"date time"}, "client": {"c-ip"}, "ip": {"c-ip"}, "endpoint": {"cs-uri-stem"},
		"method": {"cs-method"}, "host": {"x-host-header", "cs(Host)"}}},
	IIS: {fields: Fields{"time": {"date time"}, "client": {"c-ip"}, "ip": {"c-ip"}, "endpoint": {"cs-uri-stem"},
		"method": {"cs-method"}, "host": {"cs-host", "cs(Host)"}}},
	Envoy: {fields: Fields{"time": {"start_time"}, "client": {"x_forwarded_for", "downstream_remote_address"},
		"ip": {"x_forwarded_for", "downstream_remote_address"}, "endpoint": {"request", "path"}, "method": {"method"},
		"host": {"authority"}}, layout: envoyLayout},
	Caddy: {fields: Fields{"time": {"ts"}, "client": {"request.client_ip", "request.remote_ip"},
		"ip": {"request.client_ip", "request.remote_ip"}, "endpoint": {"request.uri"}, "method": {"request.method"},
		"host": {"request.host"}}},
	Traefik: {fields: Fields{"time": {"StartUTC", "time"}, "client": {"ClientHost"}, "ip": {"ClientHost"},
		"endpoint": {"RequestPath"}, "method": {"RequestMethod"}, "host": {"RequestHost"}}},
	GCP: {fields: Fields{"time": {"timestamp"}, "client": {"httpRequest.remoteIp"}, "ip": {"httpRequest.remoteIp"},
		"endpoint": {"httpRequest.requestUrl"}, "method": {"httpRequest.requestMethod"}}},
}

// plainFields has the default columns of the formats JSON and CSV.
var plainFields = Fields{
	"time":     {"time", "ts", "timestamp", "@timestamp"},
	"client":   {"client", "user", "ip", "remote_ip", "remote_addr"},
	"endpoint": {"endpoint", "path", "uri", "request_uri", "url", "request"},
	"ip":       {"ip", "remote_ip", "remote_addr"},
	"cost":     {"cost"},
	"tier":     {"tier"},
	"method":   {"method", "request_method"},
	"host":     {"host"},
}

// marks has some names of fields for each of these JSON formats. A log whose first line has all the names of a format is in
// that format.
var marks = map[Format][]string{
	Caddy:   {`"request":{`, `"uri":`, `"ts":`},
	Traefik: {`"RequestPath":`, `"ClientHost":`},
	GCP:     {`"httpRequest":`, `"requestUrl":`, `"timestamp":`},
	Envoy:   {`"start_time":`, `"response_code":`},
}

// guess returns the format of a log. The given line is the first line of the log. If this line is a header with a
// column for the time, the log is a CSV.
func (r *Reader) guess(line []byte) Format {
	if bytes.HasPrefix(bytes.TrimLeft(line, " \t"), []byte("{")) {
		return r.guessJSON(line)
	}
	if bytes.HasPrefix(line, []byte("#")) {
		return IIS
	}
	words := bytes.SplitN(line, []byte(" "), 5)
	isTime := func(i int) bool {
		if i >= len(words) {
			return false
		}
		_, ok := parseTime(bytes.Trim(words[i], "[]"))
		return ok && bytes.IndexByte(words[i], 'T') > 0
	}
	isPort := func(i int) bool {
		if i >= len(words) {
			return false
		}
		_, err := netip.ParseAddrPort(string(words[i]))
		return err == nil
	}
	switch {
	case isTime(1) && isPort(3):
		return ALB
	case isTime(0) && isPort(2):
		return CLB
	case isTime(0) && line[0] == '[':
		return Envoy
	}
	times := r.options.Fields["time"]
	if times == nil {
		times = plainFields["time"]
	}
	header, err := headerOf(line, r.options.Comma)
	if err == nil && slices.ContainsFunc(header, func(name string) bool { return slices.Contains(times, name) }) {
		return CSV
	}
	if len(words) == 5 && bytes.IndexByte(words[0], ':') > 0 && string(words[1]) != "-" {
		if _, ok := addressIn(string(words[1])); ok {
			return VHost
		}
	}
	return Combined
}

// guessJSON returns the format of a log with a JSON object on each line. If the user has named the columns of the time, the
// client or the endpoint, the format is JSON, whatever the line contains.
func (r *Reader) guessJSON(line []byte) Format {
	for _, part := range []string{"time", "client", "endpoint"} {
		if r.options.Fields[part] != nil {
			return JSON
		}
	}
	for _, format := range slices.Sorted(maps.Keys(marks)) {
		missing := func(text string) bool { return !bytes.Contains(line, []byte(text)) }
		if !slices.ContainsFunc(marks[format], missing) {
			return format
		}
	}
	return JSON
}
