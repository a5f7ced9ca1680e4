package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/ratelimit-go/ratelimit/internal/confmap"
)

var versionCommand = command{
	name:    "version",
	summary: "which version this is",
	examples: `
ratelimit version
`,
	about: `
Prints the version of the program, the version of Go that it was built with, and
the operating system and the processor that it was built for.
`,
	run: func(_ context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
		if _, err := parse(fs, args, 0, 0, ""); err != nil {
			return err
		}
		_, err := fmt.Fprintln(t.out, version())
		return err
	},
}

// version returns the name and the version of the program, as "ratelimit v0.1.0 go1.26.1 linux/amd64". If the program has no
// version, as in a checkout, "(devel)" stands in its place.
func version() string {
	text := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		text = info.Main.Version
	}
	return fmt.Sprintf("ratelimit %s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func completionCommand() command {
	return command{
		name:    "completion",
		summary: "let a shell complete commands and flags",
		examples: `
ratelimit completion bash > /etc/bash_completion.d/ratelimit
source <(ratelimit completion zsh)
ratelimit completion fish > ~/.config/fish/completions/ratelimit.fish
`,
		about: `
Prints a script for bash, zsh or fish. With it, the shell completes the names of
commands, their flags, and files.
`,
		run: runCompletion,
	}
}

func runCompletion(_ context.Context, t *terminal, fs *flag.FlagSet, args []string) error {
	shells, err := parse(fs, args, 1, 1, "the shell: bash, zsh or fish")
	if err != nil {
		return err
	}
	script, ok := map[string]func(io.Writer, map[string][]string){"bash": completeBash, "zsh": completeZsh, "fish": completeFish}[shells[0]]
	if !ok {
		return usageError(fmt.Sprintf("no shell %q: must be bash, zsh or fish", plain(shells[0])))
	}
	var b strings.Builder
	script(&b, flagsOf())
	_, err = io.WriteString(t.out, b.String())
	return err
}

// flagsOf returns the flags of each command, such as "-config", in alphabetical order.
func flagsOf() map[string][]string {
	flags := make(map[string][]string)
	for _, c := range commands() {
		fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		fs.Usage = func() {}
		quiet := &terminal{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
		_ = c.run(context.Background(), quiet, fs, []string{"-h"}) // defines the flags, and does nothing else
		fs.VisitAll(func(f *flag.Flag) { flags[c.name] = append(flags[c.name], "-"+f.Name) })
	}
	return flags
}

// names returns the names of all commands.
func names() (all []string) {
	for _, c := range commands() {
		all = append(all, c.name)
	}
	return all
}

func completeBash(w io.Writer, flags map[string][]string) {
	fmt.Fprintf(w, "_ratelimit() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]}\n\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n"+
		"\t\tCOMPREPLY=($(compgen -W '%s help' -- \"$cur\"))\n\t\treturn\n\tfi\n\tcase $cur in\n\t-*) ;;\n\t*) return ;;\n\tesac\n"+
		"\tcase ${COMP_WORDS[1]} in\n", strings.Join(names(), " "))
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", c.name, strings.Join(flags[c.name], " "))
	}
	fmt.Fprintf(w, "\tesac\n}\ncomplete -o default -F _ratelimit ratelimit\n")
}

func completeZsh(w io.Writer, flags map[string][]string) {
	fmt.Fprintf(w, "#compdef ratelimit\n_ratelimit() {\n\tif [ \"$CURRENT\" -eq 2 ]; then\n\t\tcompadd %s help\n\t\treturn\n\tfi\n"+
		"\tif [[ ${words[CURRENT]} != -* ]]; then\n\t\t_files\n\t\treturn\n\tfi\n\tcase ${words[2]} in\n", strings.Join(names(), " "))
	for _, c := range commands() {
		fmt.Fprintf(w, "\t%s) compadd -- %s ;;\n", c.name, strings.Join(flags[c.name], " "))
	}
	fmt.Fprintf(w, "\tesac\n}\ncompdef _ratelimit ratelimit\n")
}

func completeFish(w io.Writer, flags map[string][]string) {
	for _, c := range commands() {
		fmt.Fprintf(w, "complete -c ratelimit -n __fish_use_subcommand -f -a %s -d '%s'\n", c.name, strings.ReplaceAll(c.summary, "'", `\'`))
		for _, name := range flags[c.name] {
			fmt.Fprintf(w, "complete -c ratelimit -n '__fish_seen_subcommand_from %s' -o %s\n", c.name, strings.TrimPrefix(name, "-"))
		}
	}
}

// similar returns the first command whose name begins with the given text. If there is none, it returns the command whose name
// is most like the text. If no name is like the text, it returns an empty text.
func similar(text string) string {
	all := names()
	if i := slices.IndexFunc(all, func(name string) bool { return text != "" && strings.HasPrefix(name, text) }); i >= 0 {
		return all[i]
	}
	return confmap.Nearest(text, all)
}
