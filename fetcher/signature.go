package fetcher

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"recibo/setting"
)

// signatureVersion is the one that is known. Another one may sign other things by the same names.
const signatureVersion = "v1"

// verify says which check of the signature a message fails, nil when it is authentic. A message is verified with the
// keys of the source that it claims to come from, and with any of them: keys rotate. Its age refuses nothing, since a
// queue that is read after an outage holds genuine old messages; dropping repetitions is what protects against replay.
func (v *Verifier) verify(m *message) error {
	s := v.sources.find(m.headers["source"], m.tenant())
	if s == nil {
		return fmt.Errorf("source: %s of tenant %s is not among fetcher.sources", shown(m.headers["source"]), shown(m.tenant()))
	}
	sent := m.headers[signatureHeader]
	if sent == "" {
		return errors.New("signature: header x-message-signature is missing")
	}
	at, err := unixSeconds(m.headers[timeHeader])
	if err != nil {
		return fmt.Errorf("signature: header t: %w", err)
	}
	signed, err := m.signed()
	if err != nil {
		return fmt.Errorf("signature: %w", err)
	}
	if !signedByAny(s.external.now(), sent, signed, m.body) {
		return fmt.Errorf("signature: does not fit %s by any key of %s%s", m.covered(), s.external.key, s.external.note())
	}
	if ahead := at.Sub(v.now()); ahead > v.tolerance {
		return fmt.Errorf("signature: its time is %s ahead of this machine's clock, more than %s is not taken: one of the clocks is wrong",
			setting.FormatDuration(ahead.Round(time.Second)), setting.FormatDuration(v.tolerance))
	}
	return nil
}

// signed is the text that is signed before the body: six lines, so that neither tenant nor job nor route can be another.
// None of them may break a line, or one text could be read as two messages. Fetcher 1.x signed the time alone.
func (m *message) signed() (string, error) {
	if m.legacy {
		return m.headers[timeHeader] + ".", nil
	}
	if version := m.headers[versionHeader]; version != signatureVersion {
		return "", fmt.Errorf("version %s is not %s", shown(version), signatureVersion)
	}
	lines := [...]string{
		m.headers[timeHeader], m.headers[versionHeader], m.headers[tenantHeader], m.parts.jobID, m.route.Exchange, m.route.RoutingKey,
	}
	for _, line := range lines {
		if strings.ContainsFunc(line, unicode.IsControl) {
			return "", errors.New("a value that it covers holds control characters")
		}
	}
	return strings.Join(lines[:], "\n") + "\n", nil
}

func (m *message) covered() string {
	if m.legacy {
		return "time and body"
	}
	return "time, tenant, job, exchange, routing key and body"
}

// signedByAny compares in constant time, and with every key, so that neither the digits nor the key in use show in the
// time it takes.
func signedByAny(keys []Key, sent, signed string, body []byte) bool {
	found := false
	for _, key := range keys {
		mac := hmac.New(sha256.New, key.reveal())
		mac.Write([]byte(signed))
		mac.Write(body)
		if hmac.Equal([]byte(sent), []byte(hex.EncodeToString(mac.Sum(nil)))) {
			found = true
		}
	}
	return found
}

// unixSeconds reads a decimal number and nothing that a more lenient reader would take for one too.
func unixSeconds(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("missing")
	}
	seconds, err := strconv.ParseUint(text, 10, 40) // 40 bits reach past the year 36000
	if err != nil || strconv.FormatUint(seconds, 10) != text {
		return time.Time{}, fmt.Errorf("%s is not a time in Unix seconds", shown(text))
	}
	return time.Unix(int64(seconds), 0), nil
}
