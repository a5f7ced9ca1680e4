package verify

import "fmt"

// expect returns an error unless got equals want.
func expect[V comparable](got, want V) error {
	if got != want {
		return fmt.Errorf("\n got %+v\nwant %+v", got, want)
	}
	return nil
}
