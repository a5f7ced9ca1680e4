package pgstore

import (
	"regexp"
	"strings"
)

// defaultTable is the name of the table without [WithTable].
const defaultTable = "ratelimit"

// identifier matches the names that a table may have: unquoted, in lower case, with or without a schema.
var identifier = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,50}\.)?[a-z_][a-z0-9_]{0,50}$`)

// Schema returns the SQL that makes the table with this name, such as "ratelimit" or "limits.ratelimit", and its two functions. [New]
// runs it if something is missing. Run it yourself if the role of your program may not create tables; the role then needs the right
// to SELECT, INSERT, UPDATE and DELETE in the table. Schema returns an empty text if the name is not valid, see [WithTable].
func Schema(table string) string {
	if !identifier.MatchString(table) {
		return ""
	}
	return strings.ReplaceAll(schema, "{table}", table)
}

// schema is the SQL for the table {table}.
//
// There is no index on expires: each decision changes that column, so an index on it would make every update write a new entry into
// all indexes. The names of the functions end with the version of the schema (_1), so that programs with different versions can run at
// the same time.
//
// In the functions, an op says what to do with a row: 0 reads the value of the row, 1 compares it, 2 inserts the row, 3 updates it, and
// 4 deletes it. 5 compares the value, and locks the row until the other rows of the group are written.
//
// The functions check twice that the decision was made for about the present time. The first check comes before any row is used, and
// avoids useless work. The second check comes after all rows, because the function may have waited long for the lock of a row.
const schema = `create table if not exists {table} (
	key bytea primary key,
	value bytea not null,
	expires timestamptz not null
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

create or replace function {table}_put_1(
	op int, k bytea, v_old bytea, v_new bytea, until timestamptz, guess timestamptz, wait int, durable boolean,
	out done boolean, out v bytea, out at timestamptz
) language plpgsql as $$
begin
	perform set_config('lock_timeout', wait::text, true);
	if not durable then
		perform set_config('synchronous_commit', 'off', true);
	end if;
	at := clock_timestamp();
	done := false;
	if guess is null or guess <= at and guess > at - interval '50 ms' then
		case op
		when 0 then
			null;
		when 1 then
			select t.value into v from {table} t where t.key = k;
			done := v is not distinct from v_old;
		when 2 then
			insert into {table} (key, value, expires) values (k, v_new, until) on conflict do nothing;
			done := found;
		when 3 then
			update {table} t set value = v_new, expires = until where t.key = k and t.value = v_old;
			done := found;
		else
			delete from {table} t where t.key = k and t.value = v_old;
			done := found;
		end case;
	end if;
	if not done then
		select t.value into v from {table} t where t.key = k;
	end if;
	at := clock_timestamp();
	if done and op > 0 and guess is not null and not (guess <= at and guess > at - interval '50 ms') then
		raise exception using errcode = 'RL001', message = 'the row was locked for too long';
	end if;
end $$;

create or replace function {table}_swap_1(
	ops int[], grps int[], single boolean[], ks bytea[], v_olds bytea[], v_news bytea[], untils timestamptz[],
	guess timestamptz, wait int, durable boolean,
	out dones boolean[], out vs bytea[], out at timestamptz
) language plpgsql as $$
declare
	n int := cardinality(ks);
	g int;
	v bytea;
	ok boolean;
	timely boolean;
begin
	perform set_config('lock_timeout', wait::text, true);
	if not durable then
		perform set_config('synchronous_commit', 'off', true);
	end if;
	at := clock_timestamp();
	timely := guess is null or guess <= at and guess > at - interval '50 ms';
	dones := array_fill(timely, array[n]);
	vs := array_fill(null::bytea, array[n]);
	-- The rows come in the order of their keys, so that no two transactions wait for each other. A row that is alone in its group is
	-- written at once. A row of a larger group is locked, or inserted, and is written when it is known that all rows are right.
	for i in 1..n loop
		g := grps[i];
		if not dones[g] and single[i] then
			continue;
		end if;
		case
		when ops[i] = 0 or not dones[g] then
			ok := false;
		when ops[i] = 1 then
			select t.value into v from {table} t where t.key = ks[i];
			ok := v is not distinct from v_olds[i];
		when ops[i] = 2 then
			insert into {table} (key, value, expires) values (ks[i], v_news[i], untils[i]) on conflict do nothing;
			ok := found;
		when single[i] and ops[i] = 3 then
			update {table} t set value = v_news[i], expires = untils[i] where t.key = ks[i] and t.value = v_olds[i];
			ok := found;
		when single[i] then
			delete from {table} t where t.key = ks[i] and t.value = v_olds[i];
			ok := found;
		else
			select t.value into v from {table} t where t.key = ks[i] for update;
			ok := v is not distinct from v_olds[i];
		end case;
		dones[g] := dones[g] and ok;
		if ops[i] = 2 and ok then
			vs[i] := v_news[i]; -- it was inserted
		end if;
	end loop;
	for i in 1..n loop
		g := grps[i];
		if dones[g] then
			if not single[i] and ops[i] = 3 then
				update {table} t set value = v_news[i], expires = untils[i] where t.key = ks[i];
			elsif not single[i] and ops[i] = 4 then
				delete from {table} t where t.key = ks[i];
			end if;
			vs[i] := null;
		else
			if vs[i] is not null then
				delete from {table} t where t.key = ks[i];
				vs[i] := null;
			else
				select t.value into v from {table} t where t.key = ks[i];
				vs[i] := v;
			end if;
		end if;
	end loop;
	at := clock_timestamp();
	if timely and guess is not null and true = any(dones) and not (guess <= at and guess > at - interval '50 ms') then
		raise exception using errcode = 'RL001', message = 'a row was locked for too long';
	end if;
end $$;
`
