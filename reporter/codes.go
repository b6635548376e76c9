package reporter

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"recibo/rest"
)

// NotReady reports whether a download was refused because the report is not Finished (yet): TPL-0029 in v1.1, 0260 in
// the 2026 versions. It can race the event.
func NotReady(err error) bool { return coded(err, "TPL-0029", "0260") }

// Missing reports whether a download failed for want of the file, or over trouble of the storage with it, which look
// alike: TPL-0034 in v1.1, 0265 in the 2026 versions.
func Missing(err error) bool { return coded(err, "TPL-0034", "0265") }

// Undescribable reports whether an error of Report, and of no other call, says that the description can't be had, as
// opposed to not now.
func Undescribable(err error) bool { return status(err, undescribable()...) }

// undescribable returns the statuses of a Reporter that grants the download but not the description.
func undescribable() []int {
	return []int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented}
}

// objectCode reports whether an answer is about the report asked for. That includes the 503 of a storage that has not
// got this one file, and the TPL-0011 of v1.1 for a Finished report whose template is gone.
func objectCode(status int, code string) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false
	}
	if among(code, "TPL-0029", "0260", "TPL-0034", "0265", "TPL-0011") {
		return true
	}
	number := strings.TrimPrefix(code, "TPL-")
	return status < 500 && number != "" && strings.Trim(number, "0123456789") == ""
}

func coded(err error, codes ...string) bool {
	var e *rest.Error
	return errors.As(err, &e) && !e.Token && among(e.Code, codes...)
}

// among compares codes; one written as a JSON number has lost its leading zeros.
func among(code string, codes ...string) bool {
	return code != "" && slices.ContainsFunc(codes, func(known string) bool {
		return strings.TrimLeft(known, "0") == strings.TrimLeft(code, "0")
	})
}

// status reports whether err is Reporter's own answer, not Access Manager's, with one of the statuses.
func status(err error, statuses ...int) bool {
	var e *rest.Error
	return errors.As(err, &e) && !e.Token && slices.Contains(statuses, e.Status)
}
