package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The method save writes a file. The path "-" stands for the standard output.
func (t *terminal) save(path string, write func(io.Writer) error) error {
	if path == "-" || t.isOutput(path) {
		return write(t.out)
	}
	return save(path, write)
}

// isOutput reports whether path names the file to which the standard output goes, as /dev/stdout does.
func (t *terminal) isOutput(path string) bool {
	f, ok := t.out.(*os.File)
	if !ok {
		return false
	}
	out, err := f.Stat()
	if err != nil {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && os.SameFile(out, info)
}

// save calls the given function to write the content of the file at path. If this function fails, the file stays as it was
// before, and no partial file is left. A symbolic link stays a link: save writes the file that it leads to. If that file
// exists, it keeps its mode. If path is a device, a pipe, or an open file of this process such as /dev/fd/3, save writes to
// it directly.
func save(path string, write func(io.Writer) error) error {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || isOpenFile(path)) {
		return saveInto(path, write)
	}
	target, err := followed(path)
	if err != nil {
		return fmt.Errorf("%s: %w", plain(path), causeOf(err))
	}
	return replaceFile(path, target, info, write)
}

// isOpenFile reports whether the path names an open file of a process.
func isOpenFile(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, "/proc/")
}

// saveInto appends to the device, the pipe or the open file at path. It never replaces it by a new file.
func saveInto(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", plain(path), causeOf(err))
	}
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}

// followed returns the path to which a symbolic link leads, even if there is no file at that path. If path is no link,
// followed returns the path itself.
func followed(path string) (string, error) {
	for range 40 {
		to, err := os.Readlink(path)
		if err != nil {
			return path, nil //nolint:nilerr // path is no link
		}
		if !filepath.IsAbs(to) {
			dir, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			to = filepath.Join(dir, to)
		}
		path = to
	}
	return "", errors.New("too many symbolic links")
}

// replaceFile writes a new file beside the target, and then moves it to the target. The parameter old describes the file
// that is there already; it is nil if there is none. Errors name the given path.
func replaceFile(path, target string, old os.FileInfo, write func(io.Writer) error) (err error) {
	f, err := createBeside(target)
	if err != nil {
		return fmt.Errorf("%s: %w", plain(path), causeOf(err))
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return err
	}
	if old != nil {
		err = os.Chmod(f.Name(), old.Mode().Perm())
	}
	for _, do := range []func() error{f.Sync, f.Close, func() error { return os.Rename(f.Name(), target) }} {
		if err != nil {
			return fmt.Errorf("%s: %w", plain(path), causeOf(err))
		}
		err = do()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", plain(path), causeOf(err))
	}
	return nil
}

// createBeside creates a file with a name of its own in the directory of the target. The file has the mode that new files
// of this process have.
func createBeside(target string) (f *os.File, err error) {
	for range 100 {
		name := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+"."+strconv.FormatUint(rand.Uint64(), 36))
		if f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666); !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return f, err
}

// causeOf returns the reason in an error about a file. It leaves out the name of the file, because the file may be a temporary
// one, which the user does not know.
func causeOf(err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
