package confmap

// A Schema says which fields a map may have, and by which names they may be given. Capital letters,
// "_" and "-" in a name do not matter, see [Fold].
type Schema struct {
	// Fields are the names of the fields.
	Fields []string

	byName map[string]string // maps each name of a field, as Fold returns it, to the field
}

// NewSchema returns the Schema of these fields. The parameter aliases is a map with further names, each
// with the field for which it stands.
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

// Field returns the field that has this name, and reports whether there is one. It allocates nothing,
// because a config may have a million names.
func (s *Schema) Field(name string) (field string, ok bool) {
	if len(name) > MaxName {
		return "", false
	}
	var folded [MaxName]byte
	field, ok = s.byName[string(appendFolded(folded[:0], name))]
	return field, ok
}

// Match finds the fields of the given schemas in the map of the node n. From then on, the methods of n and
// of a [Reader] find a field by its own name, even if the map uses another name for it. [Reader.Unknown]
// reports the keys of the map that name no field.
//
// If the map has several names of one field, Match takes the field's own name or, without that, the
// first name in alphabetical order. Unknown reports the names that were not taken.
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

// Drop removes the fields of the given schema from the fields that Match has found in the node n.
// [Reader.Unknown] then reports them as it reports keys that name no field.
func (n *Node) Drop(schema *Schema) {
	for _, field := range schema.Fields {
		if name, ok := n.given[field]; ok {
			n.strays.add(stray{name: name, isName: true, field: field})
			delete(n.given, field)
		}
	}
}

// Rename moves the value of one field of the node n to another field, which n must not have. The
// parameters field and other are the names of the two fields. If other is empty, Rename removes the
// field from n.
func (n *Node) Rename(field, other string) {
	if other != "" {
		n.given[other] = n.given[field]
	}
	delete(n.given, field)
}
