package configfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// read returns what is in the regular file at path, or an Error. It never waits for another
// process, as the opening of a named pipe would, and reads no more than may be in a file.
func read(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err == nil {
		return data, nil
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err // the path is in the Error
	}
	return nil, &Error{File: path, Err: err}
}

func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path) // first, because opening some devices does something
	if err != nil {
		return nil, err
	}
	if err := regular(info); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0) // it may be another file by now
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

// regular returns what is wrong with a file that is not regular or too large.
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
