package ratelimit_test

import (
	"bytes"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goFiles calls f for each Go file of all modules.
func goFiles(t *testing.T, f func(path string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(path) == ".go" {
			f(path)
		}
		return err
	}))
}

// TestFileLength keeps a file to what can be read at a sitting.
func TestFileLength(t *testing.T) {
	goFiles(t, func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := bytes.Count(text, []byte("\n"))
		if !strings.HasSuffix(path, "_test.go") {
			assert.LessOrEqual(t, lines, 400, path)
		}
	})
}

// TestDocumented keeps a comment on every exported name, field and method.
func TestDocumented(t *testing.T) {
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	goFiles(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		require.NoError(t, err)
		dir := filepath.Dir(path)
		packages[dir] = append(packages[dir], file)
	})
	names := 0
	for dir, files := range packages {
		for _, file := range files {
			for _, field := range exportedFields(file) {
				names++
				assert.True(t, field.Doc != nil || field.Comment != nil, "%s: a field has no comment", fset.Position(field.Pos()))
			}
		}
		pkg, err := doc.NewFromFiles(fset, files, module+"/"+dir)
		require.NoError(t, err)
		assert.NotEmpty(t, pkg.Doc, "%s: the package has no comment", dir)
		check := func(name, comment string) {
			names++
			assert.NotEmpty(t, comment, "%s: %s has no comment", dir, name)
		}
		groups := [][]*doc.Value{pkg.Consts, pkg.Vars}
		funcs := [][]*doc.Func{pkg.Funcs}
		for _, typ := range pkg.Types {
			check(typ.Name, typ.Doc)
			groups = append(groups, typ.Consts, typ.Vars)
			funcs = append(funcs, typ.Funcs, typ.Methods)
		}
		for _, group := range groups {
			for _, v := range group {
				check(strings.Join(v.Names, ", "), v.Doc)
			}
		}
		for _, group := range funcs {
			for _, f := range group {
				check(f.Name, f.Doc)
			}
		}
	}
	assert.Greater(t, names, 80, "the walk has found the exported names")
}

// exportedFields returns the exported fields of the exported structs in file, and
// the methods of its exported interfaces.
func exportedFields(file *ast.File) (fields []*ast.Field) {
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !spec.Name.IsExported() {
			return true
		}
		var list *ast.FieldList
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			list = typ.Fields
		case *ast.InterfaceType:
			list = typ.Methods
		default:
			return true
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				if name.IsExported() {
					fields = append(fields, field)
					break
				}
			}
		}
		return true
	})
	return fields
}
