// Package apart puts faults into packages one at a time, and requires that the tests of the package find each. These
// packages are not in the module of the properties, so each mutant is compiled by itself. It has only tests.
package apart
