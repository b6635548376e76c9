package setting

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// secretList is a file with one secret per line, read again whenever it changes.
type secretList struct {
	file string

	mu    sync.Mutex
	lines []string
	stamp fileStamp
}

// SecretsFromFile returns the secrets of a file that holds one per line; empty lines and white space around a value do
// not count. Each Secret follows its line when the file changes; RevealAll also sees lines that are added or removed.
func SecretsFromFile(file string) ([]Secret, error) {
	list := &secretList{file: file}
	lines, err := list.read()
	if err != nil {
		return nil, err
	}
	secrets := make([]Secret, len(lines))
	for i, value := range lines {
		secrets[i] = Secret{&secret{list: list, line: i, value: hide(value)}}
	}
	return secrets, nil
}

// RevealAll returns every value in force. For a list that is kept in a file these are the lines the file has now, so a
// rotation that adds or removes one needs no restart.
func RevealAll(secrets []Secret) []string {
	values := make([]string, 0, len(secrets))
	seen := make(map[*secretList]bool)
	for _, s := range secrets {
		if s.s == nil {
			continue
		}
		if s.s.list == nil {
			values = append(values, s.Reveal())
			continue
		}
		if !seen[s.s.list] {
			seen[s.s.list] = true
			lines, _ := s.s.list.read()
			values = append(values, lines...)
		}
	}
	return values
}

// read returns the lines in force: the last good ones, with an error, while the file can't be used.
func (l *secretList) read() ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	info, err := os.Stat(l.file)
	if err != nil {
		return l.lines, err
	}
	stamp := stampOf(info)
	if stamp == l.stamp {
		return l.lines, nil
	}
	data, err := os.ReadFile(l.file)
	if err != nil {
		return l.lines, err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if value := strings.TrimSpace(line); value != "" {
			lines = append(lines, value)
		}
	}
	if len(lines) == 0 {
		return l.lines, fmt.Errorf("%s: %w", l.file, errNoValue)
	}
	l.lines, l.stamp = lines, stamp
	return lines, nil
}

// readLine is read for a Secret that follows one line of a list: a line that is gone leaves the last good value.
func (s *secret) readLine() (string, error) {
	lines, err := s.list.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.line < len(lines) {
		s.value = hide(lines[s.line])
	}
	return s.value.reveal(), err
}
