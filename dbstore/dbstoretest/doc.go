// Package dbstoretest checks backends of package dbstore.
package dbstoretest
