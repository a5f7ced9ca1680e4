package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A sourcePackage is a package of Go files.
type sourcePackage struct {
	dir, name string
	fset      *token.FileSet
	files     []*sourceFile
	info      types.Info
	keep      map[ast.Decl]bool // the declarations to write to files
}

type sourceFile struct {
	*ast.File
	path string
	text []byte
}

// line returns the number of the line at pos. The first line is 1.
func (p *sourcePackage) line(pos token.Pos) int { return p.fset.Position(pos).Line }

// source returns the source text of the node n of the file f.
func (p *sourcePackage) source(f *sourceFile, n ast.Node) []byte {
	return f.text[p.fset.Position(n.Pos()).Offset:p.fset.Position(n.End()).Offset]
}

// userPackages returns the packages of the repository that a user could have written: example programs, and
// tests that use a published package from outside.
func userPackages(root string) ([]*sourcePackage, error) {
	list, err := git(root, "ls-files", "*.go")
	if err != nil {
		return nil, err
	}
	var packages []*sourcePackage
	fset := token.NewFileSet()
	for name := range strings.Lines(list) {
		name = strings.TrimSpace(name)
		dir := path.Dir(name)
		if match, err := build.Default.MatchFile(filepath.Join(root, dir), path.Base(name)); err != nil || !match {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		pkg := file.Name.Name
		if !byUser(dir, pkg) {
			continue
		}
		i := slices.IndexFunc(packages, func(p *sourcePackage) bool { return p.dir == dir && p.name == pkg })
		if i < 0 {
			i = len(packages)
			packages = append(packages, &sourcePackage{dir: dir, name: pkg, fset: fset, keep: make(map[ast.Decl]bool)})
			packages[i].info.Uses = make(map[*ast.Ident]types.Object)
		}
		packages[i].files = append(packages[i].files, &sourceFile{file, name, text})
	}
	for _, p := range packages {
		var files []*ast.File
		for _, f := range p.files {
			files = append(files, f.File)
		}
		// Find what each name refers to. Only names that the package itself declares matter, so
		// imported packages are empty, and the type errors that follow from this are dropped.
		config := types.Config{Importer: emptyImporter{}, Error: func(error) {}}
		_, _ = config.Check(p.dir, fset, files, &p.info)
	}
	return packages, nil
}

// byUser reports whether a user could have written the package in dir: it is an example program, or an
// external test of a published package.
func byUser(dir, name string) bool {
	if strings.HasPrefix(dir, examplesDir+"/") {
		return name == "main"
	}
	first, _, _ := strings.Cut(dir, "/")
	return strings.HasSuffix(name, "_test") && !unpublished[first] && !strings.Contains("/"+dir+"/", "/internal/")
}

// An emptyImporter stands in for the real importer when a package is type-checked: each import is an empty
// package, whose name it guesses from the path.
type emptyImporter struct{}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// Import returns an empty package.
func (emptyImporter) Import(importPath string) (*types.Package, error) {
	name := path.Base(majorVersion.ReplaceAllString(importPath, ""))
	pkg := types.NewPackage(importPath, strings.TrimPrefix(name, "go-"))
	pkg.MarkComplete()
	return pkg, nil
}

// keepSnippet reports whether a file of the package has the lines of a snippet. If so, it calls keepLines,
// which adds the declarations with these lines to the field keep.
func (p *sourcePackage) keepSnippet(snippet []string) bool {
	for _, f := range p.files {
		lines := trimmedLines(string(f.text))
		for above := range max(0, len(lines)-len(snippet)+1) {
			if slices.Equal(lines[above:above+len(snippet)], snippet) {
				p.keepLines(f, above+1, above+len(snippet))
				return true
			}
		}
	}
	return false
}

// keepLines adds to the field keep the declarations of the file f that have a line from first to last. It also
// adds the tests and examples of f that use one of these declarations, and all declarations of the package
// that the added ones need.
func (p *sourcePackage) keepLines(f *sourceFile, first, last int) {
	var overlapping []ast.Decl
	for _, d := range f.Decls {
		if p.line(d.Pos()) <= last && p.line(d.End()) >= first {
			overlapping = append(overlapping, d)
		}
	}
	for _, d := range f.Decls {
		needed := make(map[ast.Decl]bool)
		p.need(d, needed)
		uses := isTest(d) && slices.ContainsFunc(overlapping, func(d ast.Decl) bool { return needed[d] })
		if uses || slices.Contains(overlapping, d) {
			maps.Copy(p.keep, needed)
		}
	}
}

// isTest reports whether d is a function that go test runs.
func isTest(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Example"))
}

// The method named "need" adds the declaration d to the map needed. It also adds all declarations of the package
// that d needs to compile: the declarations of the names in d, and the methods of its types.
func (p *sourcePackage) need(d ast.Decl, needed map[ast.Decl]bool) {
	if d == nil || needed[d] {
		return
	}
	needed[d] = true
	ast.Inspect(d, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			p.need(p.declaration(p.info.Uses[id]), needed)
		}
		return true
	})
	for _, f := range p.files {
		for _, other := range f.Decls {
			if m, ok := other.(*ast.FuncDecl); ok && m.Recv != nil && p.declaration(p.receiver(m)) == d {
				p.need(m, needed)
			}
		}
	}
}

// declaration returns the top-level declaration of the object o, or nil if o is not declared at the top
// level.
func (p *sourcePackage) declaration(o types.Object) ast.Decl {
	if o == nil || o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
		return nil
	}
	for _, f := range p.files {
		for _, d := range f.Decls {
			if d.Pos() <= o.Pos() && o.Pos() < d.End() {
				return d
			}
		}
	}
	return nil
}

// receiver returns the type of which m is a method.
func (p *sourcePackage) receiver(m *ast.FuncDecl) (o types.Object) {
	ast.Inspect(m.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && o == nil {
			o = p.info.Uses[id]
		}
		return o == nil
	})
	return o
}

// write writes the declarations in the field keep to the folder dir, in files with the names of the
// original files.
func (p *sourcePackage) write(dir string) error {
	for _, f := range p.files {
		var decls bytes.Buffer
		used := make(map[string]bool)
		for _, d := range f.Decls {
			if !p.keep[d] {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					if pkg, ok := p.info.Uses[id].(*types.PkgName); ok {
						used[pkg.Imported().Path()] = true
					}
				}
				return true
			})
			fmt.Fprintf(&decls, "\n%s\n", p.source(f, d))
		}
		if decls.Len() == 0 {
			continue
		}
		var out bytes.Buffer
		fmt.Fprintf(&out, "package %s\n\n", p.name)
		for _, spec := range f.Imports {
			if used[strings.Trim(spec.Path.Value, `"`)] {
				fmt.Fprintf(&out, "import %s\n", p.source(f, spec))
			}
		}
		out.Write(decls.Bytes())
		if err := write(filepath.Join(dir, path.Base(f.path)), out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
