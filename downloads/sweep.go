package downloads

import (
	"errors"
	"fmt"
)

// Sweep removes staged files that an earlier run left behind: those that neither claimed, which may be nil, calls an
// intent's nor this process is working on. It returns how many it removed.
func (f *Folder) Sweep(claimed func(stagedName string) bool) (removed int, err error) {
	m, err := f.check()
	if err != nil {
		return 0, err
	}
	folder, err := m.staging.Open(".")
	if err != nil {
		return 0, err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(-1)
	faults := []error{err}
	for _, entry := range entries {
		name := entry.Name()
		if f.isLive(name) || claimed != nil && claimed(name) {
			continue
		}
		if err := ignoreMissing(m.staging.Remove(name)); err != nil {
			faults = append(faults, fmt.Errorf("sweeping %s: %w", stagingDir, err))
			continue
		}
		removed++
	}
	if removed > 0 {
		faults = append(faults, f.syncFolder(folder))
	}
	return removed, errors.Join(faults...)
}

// DiscardStaged removes one staged file by name, once no intent names it any more. A missing one is no error.
func (f *Folder) DiscardStaged(name string) error {
	if err := checkStaged(name); err != nil {
		return err
	}
	m, err := f.check()
	if err != nil {
		return err
	}
	f.mark(name, false)
	return ignoreMissing(m.staging.Remove(name))
}

func (f *Folder) isLive(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, live := f.live[name]
	return live
}
