package downloads

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
)

// permission is what is set on files and folders before anybody else can see them.
type permission struct {
	file, folder mode
	gid          int // -1: left to the file system
}

func newPermission(c Config) (permission, error) {
	p := permission{gid: -1}
	var err error
	if p.file, err = parseMode(c.Mode); err != nil {
		return p, err
	}
	if p.folder, err = parseMode(c.DirMode); err != nil {
		return p, err
	}
	if c.Group == "" {
		return p, nil
	}
	if gid, err := strconv.ParseUint(c.Group, 10, 31); err == nil {
		p.gid = int(gid)
		return p, nil
	}
	group, err := user.LookupGroup(c.Group)
	if err != nil {
		return p, fmt.Errorf("downloads.group: %q: no such group on this system: %w", c.Group, err)
	}
	p.gid, err = strconv.Atoi(group.Gid)
	return p, err
}

// fileMode is that of one file: downloads.mode, or another one where it is named.
func (p permission) fileMode(named string) (mode, error) {
	if named == "" {
		return p.file, nil
	}
	return parseMode(named)
}

// initial is the mode a staged file is created with: closed until it is published, unless the file system decides.
func (m mode) initial() fs.FileMode {
	if m.inherit {
		return 0o666
	}
	return 0o600
}

// initialFolder is the mode a folder is created with; the umask takes its part until setFolder.
func (p permission) initialFolder() fs.FileMode {
	if p.folder.inherit {
		return 0o777
	}
	return p.folder.file().Perm()
}

// setFile gives a staged file its mode and group. The group goes first: chown clears special bits.
func (p permission) setFile(file *os.File, m mode) error { return p.set(file, m, 0) }

// setFolder does so for a folder. A set-group-id bit that came from the parent is kept: it is how shared folders pass
// on their group.
func (p permission) setFolder(folder *os.File) error {
	info, err := folder.Stat()
	if err != nil {
		return err
	}
	return p.set(folder, p.folder, info.Mode()&fs.ModeSetgid)
}

func (p permission) set(file *os.File, m mode, keep fs.FileMode) error {
	if m.inherit {
		return nil
	}
	if p.gid >= 0 {
		if err := file.Chown(-1, p.gid); err != nil {
			return fmt.Errorf("setting downloads.group: %w", err)
		}
	}
	if err := file.Chmod(m.file() | keep); err != nil {
		return fmt.Errorf("setting downloads.mode: %w", err)
	}
	return nil
}
