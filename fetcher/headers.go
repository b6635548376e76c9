package fetcher

import (
	"fmt"
	"slices"
	"strings"
)

// headers are those of a message that are kept, in lower case, the CloudEvents attributes without their ce-. What is
// signed is among them, so that a message that is kept can be verified again after a key was added.
type headers map[string]string

// The headers that the signature is made of, and the route as it is kept beside them.
const (
	timeHeader      = "t"
	versionHeader   = "signature-version"
	tenantHeader    = "x-tenant-id"
	signatureHeader = "x-message-signature"

	exchangeName   = "exchange"
	routingKeyName = "routing-key"
)

// attributes is the allow-list of CloudEvents attributes.
var attributes = [...]string{
	"specversion", "id", "source", "type", "time", "subject", "tenantid", "datacontenttype", "schemaversion", "resourcetype", "eventtype",
}

func isSigned(name string) bool {
	return name == timeHeader || name == versionHeader || name == tenantHeader || name == signatureHeader
}

// readHeaders keeps what is known. Names come in any case, and one that comes twice with different values is refused:
// another reader might take the other. The trace is left out of that, since it decides nothing.
func readHeaders(sent map[string][]string) (headers, error) {
	kept := headers{}
	var bad error
	for header, values := range sent {
		name, ok := headerName(header)
		if !ok {
			continue
		}
		for _, value := range values {
			if earlier, twice := kept[name]; twice && earlier != value && name != "traceparent" {
				bad = fmt.Errorf("%s is given twice, differently", name)
			}
			kept[name] = value
		}
	}
	return kept, bad
}

// headerName returns the name that a header is kept under, and whether it is kept.
func headerName(header string) (string, bool) {
	header = strings.ToLower(header)
	if isSigned(header) || header == "traceparent" {
		return header, true
	}
	name, ok := strings.CutPrefix(header, "ce-")
	return name, ok && slices.Contains(attributes[:], name)
}

// claimsEvent reports whether there is any CloudEvents attribute.
func (h headers) claimsEvent() bool {
	return slices.ContainsFunc(attributes[:], func(name string) bool { _, ok := h[name]; return ok })
}
