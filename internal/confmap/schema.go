package confmap

// A Schema says which fields a map may have, and by which names they may be given. Names that
// [Fold] makes equal are the same.
type Schema struct {
	// Fields are the names of the fields.
	Fields []string

	byName map[string]string // the fields by all of their names, folded
}

// NewSchema returns the Schema of these fields. aliases are further names of them: the field by
// the name.
func NewSchema(fields []string, aliases map[string]string) *Schema {
	s := &Schema{Fields: fields, byName: make(map[string]string, len(fields)+len(aliases))}
	for _, field := range fields {
		s.byName[Fold(field)] = field
	}
	for name, field := range aliases {
		s.byName[Fold(name)] = field
	}
	return s
}

// Field returns the field that has this name, and reports whether there is one. It allocates
// nothing, because a config may have a million names.
func (s *Schema) Field(name string) (field string, ok bool) {
	if len(name) > MaxName {
		return "", false
	}
	var folded [MaxName]byte
	field, ok = s.byName[string(appendFolded(folded[:0], name))]
	return field, ok
}

// Match finds the fields of schemas in the map of n. From then on, the methods of n and of a
// [Reader] find a field by its own name, whatever the name by which it is given. The keys that
// name no field are kept for [Reader.Unknown].
//
// If a field is given twice, its own name comes first, and otherwise the names are in
// alphabetical order. The first is taken, and Unknown reports the others.
func (n *Node) Match(schemas ...*Schema) {
	n.given, n.strays = make(map[string]string), shortlist{}
	for key, value := range n.all() {
		s := strayOf(key, value)
		for _, schema := range schemas {
			if s.isName && s.field == "" {
				s.field, _ = schema.Field(s.name)
			}
		}
		if s.field == "" {
			n.strays.add(s)
			continue
		}
		first, twice := n.given[s.field]
		if !twice || s.name == s.field || first != s.field && s.name < first {
			n.given[s.field] = s.name
			s.name, s.value = first, nil
		}
		if twice {
			n.strays.add(s)
		}
	}
}

// Drop makes the fields of a schema unknown, after Match has found them.
func (n *Node) Drop(schema *Schema) {
	for _, field := range schema.Fields {
		if name, ok := n.given[field]; ok {
			n.strays.add(stray{name: name, isName: true, field: field})
			delete(n.given, field)
		}
	}
}

// Rename makes the value of one field that of another one, which n must not have. If there is no
// other one, n loses the field.
func (n *Node) Rename(field, other string) {
	if other != "" {
		n.given[other] = n.given[field]
	}
	delete(n.given, field)
}
