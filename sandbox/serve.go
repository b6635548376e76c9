package sandbox

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// classOpen is what needs no token, has no limit and is not counted.
const classOpen = "open"

// ServeHTTP answers as the contract says, unless something else was ordered: the mode of the whole Reporter first, then
// limit and token, then the faults.
func (r *Reporter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if !r.enter() {
		panic(http.ErrAbortHandler)
	}
	defer r.served.Done()
	w.Header().Set("X-Request-Id", newID())
	if r.outOfOrder(w, req) {
		return
	}
	class, id := route(req.URL.Path)
	r.counted.arrive(class, id)
	switch {
	case class == "":
		plain(w, http.StatusNotFound, "Not Found")
		return
	case req.Method != method(class):
		w.Header().Set("Allow", method(class))
		plain(w, http.StatusMethodNotAllowed, "Method Not Allowed")
		return
	case class == classOpen:
		r.open(w, req)
		return
	}
	r.pause(req, r.options.Latency)
	if class != ClassToken && !r.allowed(w, req, class) {
		return
	}
	a := r.right(class, id, req)
	r.send(w, req, r.disturb(a, r.take(class, id, a.status == http.StatusOK)))
}

// enter makes close wait for this request.
func (r *Reporter) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.served.Add(1)
	return true
}

func (r *Reporter) close() {
	r.mu.Lock()
	already := r.closed
	r.closed = true
	r.mu.Unlock()
	if !already {
		close(r.ended)
		_ = r.server.Close() // what it can't close is closed already
	}
	r.served.Wait()
}

// route finds the class of a path and the id in it.
func route(path string) (class, id string) {
	switch path {
	case "/v1/reports", "/v1/reports/":
		return ClassList, ""
	case "/v1/login/oauth/access_token":
		return ClassToken, ""
	case "/health", "/ready", "/readyz", "/version":
		return classOpen, ""
	}
	rest, ok := strings.CutPrefix(path, "/v1/reports/")
	if !ok {
		return "", ""
	}
	id, action, deeper := strings.Cut(rest, "/")
	switch {
	case !deeper:
		return ClassGet, id
	case action == "download":
		return ClassDownload, id
	}
	return "", ""
}

func method(class string) string {
	if class == ClassToken {
		return http.MethodPost
	}
	return http.MethodGet
}

// open answers the paths that tell about the server itself; readiness has another path in each era.
func (r *Reporter) open(w http.ResponseWriter, req *http.Request) {
	ready := "/ready"
	if r.options.Era == V2026 {
		ready = "/readyz"
	}
	switch req.URL.Path {
	case "/version":
		r.send(w, req, jsonAnswer(http.StatusOK, map[string]string{"version": "sandbox-" + r.options.Era.String()}))
	case "/health", ready:
		plain(w, http.StatusOK, "healthy")
	default:
		plain(w, http.StatusNotFound, "Not Found")
	}
}

// right is the answer without any fault.
func (r *Reporter) right(class, id string, req *http.Request) *answer {
	era := r.options.Era
	switch class {
	case ClassToken:
		return r.access.issue(req)
	case ClassList:
		return r.list(req.URL.Query())
	}
	record := r.find(id)
	switch {
	case record == nil:
		return era.refusal(notFound)
	case class == ClassGet:
		return jsonAnswer(http.StatusOK, era.report(&record.Report, getTimes))
	case record.Status != Finished: // a Partial report's file is refused too
		return era.refusal(notReady)
	}
	return &answer{
		status: http.StatusOK,
		header: http.Header{
			"Content-Type":        {mediaType(record.Format)},
			"Content-Disposition": {fmt.Sprintf("attachment; filename=%q", record.ID+"."+record.Format)},
		},
		body: record.content, file: record, ranges: record.Ranges,
	}
}

// list answers a page: newest created first, whatever was asked for.
func (r *Reporter) list(query url.Values) *answer {
	page, limit := number(query.Get("page"), 1), number(query.Get("limit"), 10)
	if limit > 100 {
		return r.options.Era.refusal(limitTooHigh)
	}
	answer := wirePage{Items: []wireReport{}, Page: page, Limit: limit}
	for _, record := range r.page(matcher(query), (page-1)*limit, limit) {
		answer.Items = append(answer.Items, r.options.Era.report(&record.Report, listTimes))
	}
	answer.Total = len(answer.Items)
	return jsonAnswer(http.StatusOK, answer)
}

// page returns up to limit reports that match, after the skipped ones.
func (r *Reporter) page(matches func(*record) bool, skip, limit int) []*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sort()
	if matches == nil { // no filter: no need to look at the earlier pages
		end := max(len(r.order)-skip, 0)
		found := slices.Clone(r.order[max(end-limit, 0):end])
		slices.Reverse(found)
		return found
	}
	var found []*record
	for _, record := range slices.Backward(r.order) {
		if !matches(record) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		if found = append(found, record); len(found) == limit {
			break
		}
	}
	return found
}

// matcher is nil when every report matches: a templateId or createdAt that can't be read is silently ignored.
func matcher(query url.Values) func(*record) bool {
	status, template := query.Get("status"), query.Get("templateId")
	if uuid.Validate(template) != nil {
		template = ""
	}
	from, to, dated := day(query.Get("createdAt"))
	if status == "" && template == "" && !dated {
		return nil
	}
	return func(r *record) bool {
		return (status == "" || r.Status == status) && (template == "" || r.TemplateID == template) &&
			(!dated || !r.CreatedAt.Before(from) && r.CreatedAt.Before(to))
	}
}

func number(text string, otherwise int) int {
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return n
	}
	return otherwise
}
