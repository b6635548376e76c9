package downloads

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"
)

// claim makes sure that the marker names us. Without a marker the folder is ours only if we may create one: the empty
// mount point of a share that is not mounted must not fill up with reports.
func (f *Folder) claim(root *os.Root, create, takeOver bool) error {
	owner, err := readOwner(root)
	switch {
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return f.problem("its marker can't be read", err) // this process is short of files; the folder is there
	case err != nil:
		return &Error{f.dir, "its marker " + ownerFile + " can't be read: " + err.Error(), "see that the volume is in order", ErrGone}
	case owner == f.owner:
		return nil
	case owner == "" && !create:
		return &Error{f.dir, "its marker " + ownerFile + " is missing", "see that the right volume is mounted there; " +
			"to use the folder as it is, write the ledger's id " + f.owner + " as the first line of that file", ErrGone}
	case owner != "" && !takeOver:
		return &ForeignOwnerError{f.dir, owner}
	}
	return f.writeOwner(root, owner)
}

// readOwner returns the instance id in the marker, empty when there is none.
func readOwner(root *os.Root) (string, error) { return readFirstLine(root, ownerFile) }

func readFirstLine(root *os.Root, name string) (string, error) {
	file, _, err := openRegular(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(first), nil
}

// writeOwner puts our marker there in one step. Taking a folder without one must not run over an agent that does the
// same in this moment, so that rename does not replace.
func (f *Folder) writeOwner(root *os.Root, before string) error {
	if err := f.ensureOwn(root, ownFolder, 0o755); err != nil {
		return err
	}
	temporary := ownerFile + "." + rand.Text()
	if err := f.writeMarker(root, temporary); err != nil {
		return errors.Join(f.problem("its marker can't be written", err), ignoreMissing(root.Remove(temporary)))
	}
	folder, err := root.Open(ownFolder)
	if err != nil {
		return f.problem("its marker can't be written", err)
	}
	defer folder.Close()
	replace := before != ""
	if info, err := root.Lstat(ownerFile); err == nil && info.Size() == 0 { // torn by a crash: nobody's
		replace = true
	}
	err = f.sys.rename(folder, temporary[len(ownFolder)+1:], folder, ownerFile[len(ownFolder)+1:], replace)
	if err != nil {
		removed := ignoreMissing(root.Remove(temporary))
		if other, _ := readOwner(root); errors.Is(err, fs.ErrExist) && other != "" {
			return errors.Join(&ForeignOwnerError{f.dir, other}, removed)
		}
		return errors.Join(f.problem("its marker can't be written", err), removed)
	}
	if before != "" {
		f.log.Warn("download folder taken over", "dir", f.dir, "from", before)
	}
	return f.syncFolder(folder)
}

func (f *Folder) writeMarker(root *os.Root, name string) error {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(file, "%s\n\nThis folder belongs to the recibo agent whose ledger has the id above (marked %s).\n"+
		"Please leave this file: without it the agent takes the volume for unmounted and stops publishing.\n",
		f.owner, f.now().UTC().Format(time.RFC3339))
	if err == nil {
		err = f.sys.sync(file)
	}
	return full(errors.Join(err, file.Close()))
}

// stagingID returns the random id of this very staging folder, made with it. A staged file that is not there proves that it
// was published only in the folder that it was staged in: the same path may lead to another one after a restart.
func (f *Folder) stagingID(root *os.Root) (string, error) {
	for {
		id, err := readFirstLine(root, idFile)
		if err != nil || id != "" {
			return id, err
		}
		if err := ignoreMissing(root.Remove(idFile)); err != nil { // torn by a crash: nothing was staged under it
			return "", err
		}
		file, err := root.OpenFile(idFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return "", err
		}
		_, err = fmt.Fprintln(file, rand.Text())
		if err == nil {
			err = f.sys.sync(file)
		}
		if err = full(errors.Join(err, file.Close(), f.syncPath(root, ownFolder))); err != nil {
			return "", err
		}
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
