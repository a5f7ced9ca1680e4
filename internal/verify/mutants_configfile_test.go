package verify

// fileMutants are faults in how rules are read from files, and in when they are applied.
var fileMutants = []mutant{
	{
		name: "what is behind the document is ignored", file: "configfile/scan.go",
		old: "if s.next(); s.at < len(s.data) {",
		new: "if s.next(); s.at > len(s.data) {",
		by:  "^TestFileMeans$", why: "of two documents in a file that was written over another, one would be lost",
	},
	{
		name: "a name twice in an object is dropped", file: "configfile/scan.go",
		old: "given && s.twice != nil",
		new: "given && s.twice == nil",
		by:  "^TestFileMeans$", why: "of two lists of rules, one would be ignored",
	},
	{
		name: "a file may be a level deeper", file: "configfile/scan.go",
		old: "if s.level == maxLevels {",
		new: "if s.level == maxLevels+1 {",
		by:  "^TestFileMeans$", why: "the bound is documented",
	},
	{
		name: "half a character is read", file: "configfile/scan.go",
		old: "if ok && low {",
		new: "if ok && low && s.at < 0 {",
		by:  "^TestFileMeans$", why: "it would become another one",
	},
	{
		name: "a number may begin with zeros", file: "configfile/scan.go",
		old: "if ok && s.data[s.at] == '0' {",
		new: "if ok && s.data[s.at] == 'x' {",
		by:  "^TestFileMeans$", why: "JSON has no such number",
	},
	{
		name: "what is not UTF-8 is read", file: "configfile/configfile.go",
		old: "if at := invalid(f.data); at < len(f.data) {",
		new: "if at := invalid(f.data); at > len(f.data) {",
		by:  "^TestFileMeans$", why: "a name would have bytes that nobody sees",
	},
	{
		name: "a column counts from 0", file: "configfile/place.go",
		old: "p.at-begin+1",
		new: "p.at-begin",
		by:  "^TestFileMeans$", why: "an editor counts from 1",
	},
	{
		name: "a column counts from the last place", file: "configfile/place.go",
		old: "begin = bytes.LastIndexByte(f.data[:p.at], '\\n') + 1",
		new: "begin = bytes.LastIndexByte(f.data[:counted], '\\n') + 1",
		by:  "^TestFileMeans$", why: "it counts from the begin of its line",
	},
	{
		name: "problems are in the order of the check", file: "configfile/place.go",
		old: "return cmp.Compare(a.at, b.at)",
		new: "return 0 * cmp.Compare(a.at, b.at)",
		by:  "^TestFileMeans$", why: "they are in the order of the file",
	},
	{
		name: "a problem with an option has the name of the file", file: "configfile/place.go",
		old: "if !ok {\n\t\t\tothers = append(others, part)",
		new: "if ok && path == \"\" {\n\t\t\tothers = append(others, part)",
		by:  "^TestFileMeans$", why: "nobody finds it there",
	},
	{
		name: "a reason names what the file does not have", file: "configfile/place.go",
		old: "if m == nil {",
		new: "if m == nil || len(m) > 0 {",
		by:  "^TestFileMeans$", why: "a file has no configs",
	},
	{
		name: "a tier has the place of the tiers", file: "configfile/place.go",
		old: "path = plainName.ReplaceAllString(path, \".$1\")\n",
		new: "path = plainName.ReplaceAllString(path, \"$0\")\n",
		by:  "^TestFileMeans$", why: "its error would point to another line",
	},
	{
		name: "a pipe is read", file: "configfile/read.go",
		old: "case !info.Mode().IsRegular():",
		new: "case info.Mode().IsRegular() && info.Size() < 0:",
		by:  "^TestFileWatched$", why: "it is empty, or never ends",
	},
	{
		name: "one read is enough", file: "configfile/watcher.go",
		old: "case atRest:",
		new: "case atRest || len(found.sights) > 0:",
		by:  "^TestFileWatched$", why: "half a file would be applied",
	},
	{
		name: "a file is applied again and again", file: "configfile/watcher.go",
		old: "case s.id == w.seen:",
		new: "case s.id == w.seen && s.err != nil:",
		by:  "^TestFileWatched$", why: "a bad file would be logged every 5 seconds",
	},
	{
		name: "a file is applied again after an error", file: "configfile/watcher.go",
		old: `s.hash != "" && s.hash == w.Status().Hash`,
		new: `s.hash == "" && s.hash == w.Status().Hash`,
		by:  "^TestFileWatched$", why: "what code has added would be gone",
	},
	{
		name: "a file that never rests is never applied", file: "configfile/watcher.go",
		old: "r, done := w.read(&found, n == maxReads-1)",
		new: "r, done := w.read(&found, n == maxReads)",
		by:  "^TestFileWatched$", why: "its rules would be old for ever",
	},
	{
		name: "of a file that never rests, the oldest is applied", file: "configfile/watcher.go",
		old: "range slices.Backward(sights) {",
		new: "range sights {",
		by:  "^TestFileWatched$", why: "the newest that is good wins",
	},
	{
		name: "an error is not forgotten", file: "configfile/watcher.go",
		old: "w.status.Err = nil",
		new: "w.status.Err = errors.Join(w.status.Err)",
		by:  "^TestFileWatched$", why: "the alarm would never end",
	},
	{
		name: "Look applies only what is new", file: "configfile/watcher.go",
		old: "return w.deal(sightOf(read(w.Path)))",
		new: "s := sightOf(read(w.Path))\n\tif s.id == w.seen {\n\t\treturn &result{sight: s}\n\t}\n\treturn w.deal(s)",
		by:  "^TestFileWatched$", why: "SIGHUP would do nothing",
	},
}
