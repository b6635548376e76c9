package fetcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"recibo/rest"
)

// object is the members of a JSON object under their exact names. encoding/json alone would take JOBID for jobId and the
// last of several members of one name, so that two readers of one signed text could see two jobs in it.
type object map[string]json.RawMessage

// readObject reads an object, in which none of the known members may come twice or beside a name that differs from it in
// upper and lower case only. Other members are let be: newer versions may have them.
func readObject(raw []byte, known ...string) (object, error) {
	if !json.Valid(raw) {
		return nil, errors.New("not JSON")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	members := object{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := token.(string)
		if err := members.add(name, value, known); err != nil {
			return nil, err
		}
	}
	return members, nil
}

func (o object) add(name string, value json.RawMessage, known []string) error {
	for _, k := range known {
		if name != k && strings.EqualFold(name, k) {
			return fmt.Errorf("member %q is not %s", rest.Harmless(name, 32), k)
		}
		if _, twice := o[k]; twice && name == k {
			return fmt.Errorf("member %s comes twice", k)
		}
	}
	o[name] = value
	return nil
}

// has reports whether a member is there and not null.
func (o object) has(name string) bool {
	return len(o[name]) > 0 && !bytes.Equal(o[name], []byte("null"))
}

// text returns a string, empty for a member that is missing or null.
func (o object) text(name string) (string, error) {
	if !o.has(name) {
		return "", nil
	}
	var s string
	if err := json.Unmarshal(o[name], &s); err != nil {
		return "", fmt.Errorf("%s is not a string", name)
	}
	return s, nil
}

// count returns a whole number that is not negative, 0 for a member that is missing or null.
func (o object) count(name string) (int64, error) {
	if !o.has(name) {
		return 0, nil
	}
	var n int64
	if err := json.Unmarshal(o[name], &n); err != nil || n < 0 {
		return 0, fmt.Errorf("%s is not a whole number of 0 or more", name)
	}
	return n, nil
}

// errorText reads metadata.error: a text in a description, an object with a message in an event. Metadata is the
// requester's own, so whatever else stands there is no error.
func errorText(metadata json.RawMessage) string {
	meta, err := readObject(metadata)
	if err != nil {
		return ""
	}
	if text, err := meta.text("error"); err == nil {
		return rest.Harmless(text, maxErrorText)
	}
	inner, err := readObject(meta["error"])
	if err != nil {
		return ""
	}
	text, _ := inner.text("message")
	return rest.Harmless(text, maxErrorText)
}

// maxErrorText bounds the reason of a failed job, in bytes.
const maxErrorText = 2048
