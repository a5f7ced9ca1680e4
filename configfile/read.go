package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// read returns the content of the regular file at path, or an Error. It never waits for another
// process, as opening a named pipe would. It reads at most one byte more than maxSize.
func read(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err == nil {
		return data, nil
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err // leave out the path, because the Error contains it
	}
	return nil, &Error{File: path, Err: err}
}

func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path) // check before opening, because opening a device can have side effects
	if err != nil {
		return nil, err
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0) // since Stat, path may have become a pipe: do not wait for its writer
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if len(data) > maxSize {
		return nil, fault(tooLarge)
	}
	return data, err
}

// regular returns an error if the file is not regular or is too large.
func regular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fault("must be a regular file, but is a directory")
	case !info.Mode().IsRegular():
		return fault(fmt.Sprintf("must be a regular file, but its mode is %v", info.Mode()))
	case info.Size() > maxSize:
		return fault(tooLarge)
	}
	return nil
}
