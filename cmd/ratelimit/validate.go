package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/cmd/ratelimit/internal/lint"
	"github.com/ratelimit-go/ratelimit/configfile"
)

var validateCommand = command{
	name:    "validate",
	summary: "what is wrong with a file of rules, and what may surprise",
	examples: `
ratelimit validate limits.json
ratelimit validate -cost /export=50 -cost /chat=tokens:8000 limits.json
ratelimit validate -ignore RL002,/login:RL001 -format github limits.json
ratelimit validate conf/ -
`,
	about: `
Reports every problem at once, with line and column. A file without problems is
checked for what is valid, but may surprise. Of a directory, it reads all files
whose names end in .json; "-" is the standard input. -ignore leaves out a code,
or with RULE:CODE that of one rule. Each finding has a code that stays the same:

` + codeTable() + `
The exit code is 1 if there is a problem or a warning. Notes do not change it.
`,
	run: runValidate,
}

func codeTable() string {
	var b strings.Builder
	for _, c := range lint.Codes() {
		fmt.Fprintf(&b, "  %s  %-7s  %s\n", c.Code, c.Severity, c.Means)
	}
	return b.String()
}

// A report is one problem or one finding in a file of rules.
type report struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Code     string `json:"code"`
	Severity string `json:"severity"`
	Rule     string `json:"rule,omitempty"`
	Message  string `json:"message"`
	Advice   string `json:"advice,omitempty"`
}

// problemCode is the code of every problem. A file with a problem is invalid.
const problemCode = "RL000"

func runValidate(_ context.Context, t *terminal, flags *flag.FlagSet, args []string) error {
	costs := make(endpointCosts)
	flags.Var(costs, "cost", "the most units that a request takes, as `endpoint=units` or endpoint=unit:units; may be repeated")
	maxKeys := flags.Int("max-keys", 1<<20, "the largest `number` of keys of the limiter, as WithMaxKeys says")
	ignore := flags.String("ignore", "", "`codes` that are not reported, with commas between them; RULE:CODE is that of one rule")
	format := flags.String("format", "text", "`form` of the reports: text, json, or github for annotations")
	asJSON := flags.Bool("json", false, "the same as -format json")
	files, err := parse(flags, args, 1, 1000, "the file of rules")
	if err != nil {
		return err
	}
	if *asJSON {
		*format = "json"
	}
	printReports, known := printers[*format]
	if !known {
		return usageError(fmt.Sprintf("-format is %q: must be text, json or github", *format))
	}
	if *maxKeys < 1 {
		return usageError(fmt.Sprintf("-max-keys is %d: must be at least 1", *maxKeys))
	}
	ignored, err := ignoredCodes(*ignore)
	if err != nil {
		return err
	}
	files, unread := filesIn(files)
	reports := []report{}
	names := make(map[string]bool) // the names of all rules in the files
	for _, path := range files {
		found, err := validate(t, path, lint.Options{MaxKeys: *maxKeys, Costs: costs}, names)
		if err != nil {
			unread = append(unread, err)
		}
		reports = append(reports, slices.DeleteFunc(found, func(r report) bool { return ignored[r.Code] || ignored[r.Rule+":"+r.Code] })...)
	}
	for _, text := range slices.Sorted(maps.Keys(ignored)) {
		if i := strings.LastIndexByte(text, ':'); i >= 0 && !names[text[:i]] && len(unread) == 0 {
			return usageError(fmt.Sprintf("-ignore has %q, but no file has a rule %q", plain(text), plain(text[:i])))
		}
	}
	if err := errors.Join(append(unread, printReports(t.out, reports))...); err != nil {
		return err
	}
	if slices.ContainsFunc(reports, func(r report) bool { return r.Severity != string(lint.Note) }) {
		return errFound
	}
	if *format == "text" {
		fmt.Fprintf(t.out, "ok: %d of %s, %s\n", len(files), countText(len(files), "file"), countText(len(reports), "note"))
	}
	return nil
}

func ignoredCodes(text string) (map[string]bool, error) {
	ignored := make(map[string]bool)
	for code := range strings.SplitSeq(text, ",") {
		if code = strings.TrimSpace(code); code == "" {
			continue
		}
		known := code[strings.LastIndexByte(code, ':')+1:]
		if !slices.ContainsFunc(lint.Codes(), func(c lint.Code) bool { return c.Code == known }) {
			return nil, usageError(fmt.Sprintf("-ignore has %q, which is no code", known))
		}
		ignored[code] = true
	}
	return ignored, nil
}

// filesIn returns the given files. It replaces a directory by those files in it and in its subdirectories whose names end in
// .json. If a directory cannot be read or has no such file, the result unread has an error that says this.
func filesIn(paths []string) (files []string, unread []error) {
	for _, path := range paths {
		if info, err := os.Stat(path); path == "-" || err != nil || !info.IsDir() {
			files = append(files, path)
			continue
		}
		before := len(files)
		err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && strings.HasSuffix(name, ".json") {
				files = append(files, name)
			}
			return err
		})
		switch {
		case err != nil:
			unread = append(unread, err)
		case len(files) == before:
			unread = append(unread, fmt.Errorf("%s: no file in it ends in .json", plain(path)))
		}
	}
	return files, unread
}

// load reads the file of rules at path, or the standard input if path is "-", and makes a limiter from the rules.
func load(t *terminal, path string, opts ...ratelimit.Option) (*configfile.File, *ratelimit.RateLimiter, error) {
	if path != "-" {
		return loadRules(path, opts...)
	}
	text, err := io.ReadAll(t.in)
	if err != nil {
		return nil, nil, err
	}
	f, err := configfile.Parse("-", text)
	if err != nil {
		return nil, nil, err
	}
	l, err := f.New(opts...)
	return f, l, err
}

// validate returns the problems and findings in the file at path. It returns an error if it cannot read the file. A
// problem in a file that it can read is no error. It adds the names of the rules to the map names.
func validate(t *terminal, path string, o lint.Options, names map[string]bool) ([]report, error) {
	// A rule that does not say what happens while a store fails gets FailClosed, because lint has no finding about this
	// policy.
	f, l, err := load(t, path, ratelimit.WithFailurePolicy(ratelimit.FailClosed))
	if err != nil {
		reports := problemsOf(err)
		if f == nil && (reports == nil || reports[0].Line == 0) {
			return nil, err // err says why the file cannot be read
		}
		if ext := filepath.Ext(path); len(reports) > 0 && (ext == ".yaml" || ext == ".yml") {
			reports[0].Advice = "only JSON is read: convert the file, for example by yq -o json"
		}
		return reports, nil
	}
	if err := l.ReloadOverrides(); err != nil { // removes the overrides, because the rules are checked as if there were none
		return nil, err
	}
	findings, err := lint.Check(l, o)
	if err != nil {
		return nil, err
	}
	rules, _ := l.Rules()
	var reports []report
	for _, found := range findings {
		at, name := "default", "default"
		if found.Rule >= 0 {
			at, name = "rules["+strconv.Itoa(found.Rule)+"]", rules[found.Rule].Name
		}
		line, column := f.Find(at)
		if found.Field != "" {
			line, column = f.Find(at + "." + found.Field)
		}
		reports = append(reports, report{path, line, column, found.Code, string(found.Severity), name, found.Message, found.Advice})
	}
	var all []string
	for _, r := range allRules(l) {
		all = append(all, r.Name)
		names[r.Name] = true
	}
	for _, found := range lint.Overrides(f.Overrides(), all, time.Now()) {
		line, column := f.Find("overrides[" + strconv.Itoa(found.Rule) + "]." + found.Field)
		reports = append(reports, report{path, line, column, found.Code, string(found.Severity), "", found.Message, found.Advice})
	}
	return reports, nil
}

// loadRules reads the file of rules at path, and makes a limiter from the rules. If the file is read, but the
// limiter cannot be made, loadRules returns both the file and an error.
func loadRules(path string, opts ...ratelimit.Option) (*configfile.File, *ratelimit.RateLimiter, error) {
	f, err := configfile.Load(path)
	if err != nil {
		return nil, nil, err
	}
	l, err := f.New(opts...)
	return f, l, err
}

// problemsOf returns the problems that the error err lists. It returns nil if err is an error of another kind, for
// example that the file cannot be read.
func problemsOf(err error) (reports []report) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		var e *configfile.Error
		if !errors.As(err, &e) {
			return nil
		}
		message := strings.TrimPrefix(e.Err.Error(), "ratelimit: ")
		reports = append(reports, report{File: e.File, Line: e.Line, Column: e.Column, Code: problemCode, Severity: "error", Message: message})
	}
	return reports
}

// printers has the function that prints the reports for each value of the flag -format.
var printers = map[string]func(io.Writer, []report) error{
	"text": func(w io.Writer, reports []report) error {
		var b strings.Builder
		for _, r := range reports {
			fmt.Fprintf(&b, "%s: %s %s: %s\n", r.place(), r.Code, r.Severity, plain(r.Message))
			if r.Advice != "" {
				fmt.Fprintf(&b, "    %s\n", plain(r.Advice))
			}
		}
		_, err := io.WriteString(w, b.String())
		return err
	},
	"json": func(w io.Writer, reports []report) error { return writeJSON(w, reports) },
	"github": func(w io.Writer, reports []report) error {
		var b strings.Builder
		for _, r := range reports {
			kind := map[string]string{"note": "notice"}[r.Severity]
			if kind == "" {
				kind = r.Severity
			}
			message := r.Message
			if r.Advice != "" {
				message += "\n" + r.Advice
			}
			fmt.Fprintf(&b, "::%s file=%s,line=%d,col=%d,title=%s::%s\n",
				kind, annotated(r.File, true), r.Line, r.Column, r.Code, annotated(message, false))
		}
		_, err := io.WriteString(w, b.String())
		return err
	},
}

func (r report) place() string {
	if r.Line == 0 {
		return plain(r.File)
	}
	return fmt.Sprintf("%s:%d:%d", plain(r.File), r.Line, r.Column)
}

// annotated escapes text for a workflow command of GitHub. It encodes the characters that would end the command. If
// property is true, it also encodes the characters that would end a property of the command.
func annotated(text string, property bool) string {
	r := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	if property {
		r = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	}
	return r.Replace(text)
}

// An endpointCosts collects the values of the flag -cost of the command validate. It maps the name of each endpoint to
// the costs of a request to this endpoint, one cost for each unit.
type endpointCosts map[string][]ratelimit.Cost

func (c endpointCosts) String() string { return "" }

// Set reads what a request for one endpoint costs, such as "/search=5" for 5 requests, or "/chat=tokens:900" for 900 tokens.
func (c endpointCosts) Set(text string) error {
	i := strings.LastIndexByte(text, '=')
	if i < 0 {
		return errors.New("must be endpoint=units, or endpoint=unit:units")
	}
	unit, count, ok := strings.Cut(text[i+1:], ":")
	if !ok {
		unit, count = "", unit
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || ok && unit == "" {
		return errors.New("must be endpoint=units or endpoint=unit:units, with at least one unit")
	}
	costs := slices.DeleteFunc(c[text[:i]], func(have ratelimit.Cost) bool { return have.Unit == unit })
	c[text[:i]] = append(costs, ratelimit.Cost{Unit: unit, N: n})
	return nil
}
