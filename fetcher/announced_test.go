package fetcher

import (
	"testing"
)

func TestWhatIsAnnounced(t *testing.T) {
	t.Parallel()
	all := load(t)
	a, err := ParseAnnounced([]byte(all.Events[0].Body))
	if err != nil {
		t.Fatal(err)
	}
	if a.JobID != jobID || a.Status != Completed || a.CompletedAt != "2026-06-24T12:00:00.123456789Z" || a.ExecutionTimeMS != 1234 ||
		string(a.Metadata) != `{"correlationId":"c-42","source":"reporter"}` || a.Error != "" ||
		*a.Result != (Result{Path: all.Result.ObjectKey, SizeBytes: 403, RowCount: 2, Format: "json", HMAC: all.Result.HMAC}) {
		t.Errorf("%+v %+v", a, a.Result)
	}
	if a, err = ParseAnnounced([]byte(all.Legacy.Body)); err != nil || !a.Result.Legacy {
		t.Errorf("of version 1: %+v, %v", a, err)
	}
	for metadata, want := range map[string]string{
		`{"error":{"message":"dial tcp\nrefused"}}`: "dial tcp refused",
		`{"error":"a text"}`:                        "a text",
		`{"error":{"message":7}}`:                   "",
		`{"error":[1]}`:                             "",
		`[1,2]`:                                     "",
		`"a text"`:                                  "",
		`7`:                                         "",
		`null`:                                      "",
	} {
		a, err := ParseAnnounced([]byte(`{"jobId":"` + jobID + `","status":"failed","metadata":` + metadata + `}`))
		if err != nil || a.Error != want || a.Result != nil {
			t.Errorf("%s: %+v, %v", metadata, a, err)
		} else if kept := string(a.Metadata); kept != metadata && metadata != "null" || metadata == "null" && a.Metadata != nil {
			t.Errorf("%s: kept as %q", metadata, kept)
		}
	}
}
