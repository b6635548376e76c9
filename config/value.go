package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"recibo/setting"
)

// rawValue is a scalar as it is written, with its variables in place.
type rawValue struct {
	text    string
	plain   bool // without quotes, or from a variable
	boolean bool // plain, and true or false to YAML
}

// parse reads a value into v. The error of a secret never quotes it.
func (f *field) parse(raw rawValue, v reflect.Value) error {
	switch f.kind {
	case secret:
		return parseSecret(raw.text, v)
	case text:
		return f.parseText(raw, v)
	case boolean:
		return parseBool(raw, v)
	case integer:
		return f.parseInteger(raw, v)
	case decimal:
		return f.parseDecimal(raw, v)
	case moment:
		return parseMoment(raw.text, v)
	case custom:
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(raw.text)); err != nil {
			return fmt.Errorf("%q can't be read: %w", raw.text, err)
		}
		return nil
	default:
		return f.parseUnit(raw.text, v)
	}
}

func parseSecret(value string, v reflect.Value) error {
	value = strings.TrimSpace(value) // as for a secret that is read from a file
	if value == setting.Hidden {
		return errors.New("is the mark that `config print` shows instead of a secret, not the secret")
	}
	v.Set(reflect.ValueOf(setting.NewSecret(value)))
	return nil
}

func (f *field) parseText(raw rawValue, v reflect.Value) error {
	if raw.boolean {
		return fmt.Errorf("must be a text, and YAML takes %s for a truth value: put it in quotes if it is meant", raw.text)
	}
	if len(f.enum) > 0 && !slices.Contains(f.enum, raw.text) {
		return fmt.Errorf("must be one of %s, not %q", strings.Join(f.enum, ", "), raw.text)
	}
	if f.path && strings.Contains(raw.text, "://") {
		return errors.New("must be a path, not an address") // which would lose its form, and be shown with its password
	}
	v.SetString(raw.text)
	return nil
}

func parseBool(raw rawValue, v reflect.Value) error {
	if !raw.plain || raw.text != "true" && raw.text != "false" {
		return fmt.Errorf("must be true or false, without quotes, not %q", raw.text)
	}
	v.SetBool(raw.text == "true")
	return nil
}

// parseInteger takes decimal digits only: 010 means eight to some readers of YAML and ten to others.
func (f *field) parseInteger(raw rawValue, v reflect.Value) error {
	digits := strings.TrimPrefix(raw.text, "-")
	n, err := strconv.ParseInt(raw.text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is too large", raw.text)
	case err != nil, !raw.plain, strings.HasPrefix(raw.text, "+"), len(digits) > 1 && digits[0] == '0':
		return fmt.Errorf("must be a whole number, without quotes, not %q", raw.text)
	}
	if v.CanUint() {
		if n < 0 || v.OverflowUint(uint64(n)) {
			return fmt.Errorf("%s is out of range", raw.text)
		}
		v.SetUint(uint64(n))
	} else {
		if v.OverflowInt(n) {
			return fmt.Errorf("%s is out of range", raw.text)
		}
		v.SetInt(n)
	}
	return f.limit(n, func(limit string) (int64, error) { return strconv.ParseInt(limit, 10, 64) })
}

func (f *field) parseDecimal(raw rawValue, v reflect.Value) error {
	n, err := strconv.ParseFloat(raw.text, 64)
	if err != nil || !raw.plain || n != n || n-n != 0 {
		return fmt.Errorf("must be a number, without quotes, not %q", raw.text)
	}
	v.SetFloat(n)
	for _, bound := range []struct {
		limit, word string
		sign        float64
	}{{f.min, "at least", 1}, {f.max, "at most", -1}} {
		if limit, err := strconv.ParseFloat(bound.limit, 64); err == nil && n*bound.sign < limit*bound.sign {
			return fmt.Errorf("must be %s %s, not %s", bound.word, bound.limit, raw.text)
		}
	}
	return nil
}

func parseMoment(value string, v reflect.Value) error {
	if value == "" {
		v.SetZero()
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			v.Set(reflect.ValueOf(t))
			return nil
		}
	}
	return fmt.Errorf("must be a time such as 2026-01-31 or 2026-01-31T08:00:00Z, not %q", value)
}

// parseUnit reads the kinds that package setting knows how to write.
func (f *field) parseUnit(value string, v reflect.Value) error {
	switch f.kind {
	case duration:
		d, err := setting.ParseDuration(value)
		if err != nil {
			return err
		}
		v.SetInt(int64(d))
		return f.limit(int64(d), func(limit string) (int64, error) {
			d, err := setting.ParseDuration(limit)
			return int64(d), err
		})
	case size:
		s, err := setting.ParseSize(value)
		if err != nil {
			return err
		}
		v.SetInt(int64(s))
		return f.limit(int64(s), func(limit string) (int64, error) {
			s, err := setting.ParseSize(limit)
			return int64(s), err
		})
	default:
		r, err := setting.ParseRange(value)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(r))
		return nil
	}
}

// limit compares a value with the tags min and max, which are written as the value is.
func (f *field) limit(n int64, parse func(string) (int64, error)) error {
	if f.min != "" {
		if limit, err := parse(f.min); err == nil && n < limit {
			return fmt.Errorf("must be at least %s", f.min)
		}
	}
	if f.max != "" {
		if limit, err := parse(f.max); err == nil && n > limit {
			return fmt.Errorf("must be at most %s", f.max)
		}
	}
	return nil
}

// format writes a value as parse reads it; a secret is hidden.
func (f *field) format(v reflect.Value) string {
	switch f.kind {
	case secret:
		return v.Interface().(setting.Secret).String()
	case text:
		return v.String()
	case duration:
		return setting.FormatDuration(time.Duration(v.Int()))
	case moment:
		if t := v.Interface().(time.Time); !t.IsZero() {
			return t.Format(time.RFC3339Nano)
		}
		return ""
	case custom:
		if m, ok := v.Interface().(encoding.TextMarshaler); ok {
			if data, err := m.MarshalText(); err == nil {
				return string(data)
			}
		}
		return fmt.Sprint(v.Interface())
	default:
		return fmt.Sprint(v.Interface())
	}
}
